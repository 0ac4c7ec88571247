// The `wasm` runtime: functions in confined child processes.
import type { Clock } from '#lib/clock.ts'
import { sha256Hex } from '#lib/bytes.ts'
import { AppError, messageOf } from '#lib/error.ts'
import type { Jail } from '#wasm/jail/jail.ts'
import type { Checked, Driver } from '#agent/driver.ts'
import { ArtifactCache } from '#agent/drivers/wasm/artifact-cache.ts'
import { diag, DIAG_CPU_MILLIS, DIAG_MEM_MB, diagArtifact } from '#agent/drivers/wasm/diag.ts'
import { serveInvocation } from '#agent/drivers/wasm/invocation.ts'
import { RunnerPool } from '#agent/drivers/wasm/runner-pool.ts'

export type WasmDriverDeps = {
  clock: Clock
  dataDir: string
  /** Path of the Node binary. */
  node: string
  /** Without it runners have the bare jail. */
  jail?: Jail
  /** What all runners together may take. */
  memMb: number
  cacheBytesMax?: number
  runnersMax?: number
  idleMs?: number
}

export async function wasmDriver(deps: WasmDriverDeps): Promise<Driver> {
  const { clock, node, dataDir, memMb, cacheBytesMax, runnersMax, idleMs, jail } = deps
  const cache = await ArtifactCache.open(dataDir, cacheBytesMax)
  const builtIn = diagArtifact()
  const builtInHash = sha256Hex(builtIn)
  const pool = new RunnerPool({
    clock,
    node,
    memMbMax: memMb,
    ...(jail === undefined ? {} : { jail }),
    ...(runnersMax === undefined ? {} : { runnersMax }),
    ...(idleMs === undefined ? {} : { idleMs }),
    async artifact(sha256) {
      const bytes = sha256 === builtInHash ? builtIn : await cache.read(sha256)
      if (bytes) return bytes
      throw new AppError('UNAVAILABLE', 'the artifact is gone from the cache of the node', {
        details: { reason: 'ARTIFACT_GONE' },
      })
    },
  })
  pool.warm()
  return {
    runtime: 'wasm',
    serve: (header, stream) => serveInvocation({ clock, cache, pool }, header, stream),
    async check(signal): Promise<Checked> {
      try {
        return await pool.with(
          {
            functionId: 'diag.wasm',
            sha256: builtInHash,
            memMb: DIAG_MEM_MB,
            cpuMillis: DIAG_CPU_MILLIS,
          },
          (runner) => diag(runner, signal),
        )
      } catch (error) {
        return { ok: false, output: messageOf(error) }
      }
    },
    close: () => pool.close(),
  }
}
