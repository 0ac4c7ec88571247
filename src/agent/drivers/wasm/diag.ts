// `diag.wasm` (ND-24): does this machine run a guest in a confined child, and does its output come back?
import { encodeArtifact } from '#wasm/artifact.ts'
import type { Runner } from '#wasm/runner.ts'
import type { Checked } from '#agent/driver.ts'

const SAYS = 'clutch\n'
/**
 * A preview 1 program of 143 bytes that writes SAYS to stdout:
 * (import "wasi_snapshot_preview1" "fd_write" …) (memory (export "memory") 1 1) (data …)
 * (func (export "_start") (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20))))
 */
const MODULE = Buffer.from(
  '0061736d01000000010c0260047f7f7f7f017f60000002230116776173695f736e617073686f745f7072657669657731' +
    '0866645f7772697465000003020101050401010101071302066d656d6f72790200065f737461727400010a0f010d0041' +
    '0141004101411410001a0b0b15010041000b0f0800000007000000636c757463680a000b046e616d65010401000177',
  'hex',
)

export const DIAG_MEM_MB = 16
export const DIAG_CPU_MILLIS = 1_000
const DIAG_TIMEOUT_MS = 20_000

export const diagArtifact = (): Uint8Array =>
  encodeArtifact({
    kind: 'preview1',
    imports: [],
    glue: '',
    modules: [{ name: 'main', bytes: MODULE }],
  })

/** One invocation of the built-in program. */
export async function diag(runner: Runner, signal: AbortSignal): Promise<Checked> {
  const said: Uint8Array[] = []
  const ran = await runner.invoke({
    args: [],
    env: {},
    stdin: new Uint8Array(),
    timeoutMs: DIAG_TIMEOUT_MS,
    onStdout: (chunk) => void said.push(chunk),
    onStderr: () => undefined,
    signal,
  })
  if (ran.kind !== 'exited') return { ok: false, output: `${ran.kind}: ${ran.message}` }
  const text = Buffer.concat(said).toString()
  if (ran.exitCode === 0 && text === SAYS)
    return { ok: true, output: `a guest ran in ${ran.durationMs.toFixed(1)} ms` }
  return {
    ok: false,
    output: `the guest exited ${ran.exitCode} and wrote ${JSON.stringify(text.slice(0, 80))}; 0 and ${JSON.stringify(SAYS)} are right`,
  }
}
