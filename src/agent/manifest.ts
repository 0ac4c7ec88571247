// What this machine offers (ND-29): all of its CPU and nine tenths of its memory, or less when told so. Never more CPU
// than its runners can use: what an engine may book, the node has room for.
import { availableParallelism, totalmem } from 'node:os'
import { CPU_MILLIS } from '#core/function/limits.ts'
import { RUNNERS_MAX } from '#agent/drivers/wasm/runner-pool.ts'
import type { Manifest } from '#protocol/messages.ts'

const MIB = 1024 * 1024
/** Kept for the host: the agent itself, the kernel, whoever signs in. */
const MEM_KEPT = 0.1

/** As many of the smallest functions as there may be runners: 80 cores. */
const CPU_MILLIS_MAX = RUNNERS_MAX * CPU_MILLIS.min

export type Machine = {
  cores: number
  /** Bytes, the limit of this process's cgroup where that is lower. */
  memory: number
}

export function readMachine(): Machine {
  const limit = process.constrainedMemory()
  const total = totalmem()
  return { cores: availableParallelism(), memory: limit > 0 ? Math.min(limit, total) : total }
}

export function manifestOf(
  machine: Machine,
  offer: {
    runtimes: readonly string[]
    maxCpuMillis: number | undefined
    maxMemMb: number | undefined
  },
  jailMissing: readonly string[],
): Manifest {
  const cpuMillis = Math.min(machine.cores * 1000, CPU_MILLIS_MAX)
  const memMb = Math.floor((machine.memory * (1 - MEM_KEPT)) / MIB)
  return {
    cpuMillis: Math.min(cpuMillis, offer.maxCpuMillis ?? cpuMillis),
    memMb: Math.min(memMb, offer.maxMemMb ?? memMb),
    runtimes: [...offer.runtimes],
    jailMissing: [...jailMissing],
  }
}
