// cgroup version 1: a hierarchy a controller.
import { quotaUs, type Dialect, PERIOD_US } from '#wasm/jail/cgroup.ts'

const MIB = 1024 * 1024
/** cpu.shares: 1024 is one core's worth; the kernel's least is 2. */
const sharesOf = (cpuMillis: number): number => Math.max(2, Math.round((cpuMillis * 1024) / 1000))

export const cgroupV1: Dialect = {
  cpu: (cpuMillis) => {
    // A burst above the quota is refused, so it goes before the quota falls and comes after.
    const first: [string, string][] = [
      ['cpu.cfs_burst_us', '0'],
      ['cpu.cfs_period_us', String(PERIOD_US)],
    ]
    if (cpuMillis === undefined)
      return [...first, ['cpu.cfs_quota_us', '-1'], ['cpu.shares', '1024']]
    const quota = String(quotaUs(cpuMillis))
    return [
      ...first,
      ['cpu.cfs_quota_us', quota],
      ['cpu.cfs_burst_us', quota],
      ['cpu.shares', String(sharesOf(cpuMillis))],
    ]
  },
  memory: (memMb) => {
    // Memory with swap may not be under memory: up comes first, and then down to what is right.
    const up: [string, string][] = [
      ['memory.memsw.limit_in_bytes', '-1'],
      ['memory.limit_in_bytes', '-1'],
    ]
    if (memMb === undefined) return up
    const bytes = String(memMb * MIB)
    return [...up, ['memory.limit_in_bytes', bytes], ['memory.memsw.limit_in_bytes', bytes]]
  },
  pids: (tasksMax) => [['pids.max', String(tasksMax)]],
  limitFile: { cpu: 'cpu.cfs_quota_us', memory: 'memory.limit_in_bytes', pids: 'pids.max' },
  oomFile: 'memory.oom_control',
}
