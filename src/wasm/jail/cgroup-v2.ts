// cgroup version 2: one hierarchy. A cgroup that has processes gives no controllers to those below it, so whoever
// makes children's cgroups below its own moves out of the way first (find-cgroups.ts).
import { quotaUs, type Dialect, PERIOD_US } from '#wasm/jail/cgroup.ts'

const MIB = 1024 * 1024
/** cpu.weight: 100 is the usual one and stands for a core; from 1 to 10,000. */
const weightOf = (cpuMillis: number): number =>
  Math.min(10_000, Math.max(1, Math.round(cpuMillis / 10)))

export const cgroupV2: Dialect = {
  cpu: (cpuMillis) => {
    const quota = cpuMillis === undefined ? 'max' : String(quotaUs(cpuMillis))
    const weight = cpuMillis === undefined ? 100 : weightOf(cpuMillis)
    return [
      ['cpu.max.burst', '0'],
      ['cpu.max', `${quota} ${PERIOD_US}`],
      ...(quota === 'max' ? [] : [['cpu.max.burst', quota] satisfies [string, string]]),
      ['cpu.weight', String(weight)],
    ]
  },
  memory: (memMb) =>
    memMb === undefined
      ? [
          ['memory.max', 'max'],
          ['memory.swap.max', 'max'],
        ]
      : [
          ['memory.oom.group', '1'],
          ['memory.swap.max', '0'],
          ['memory.max', String(memMb * MIB)],
        ],
  pids: (tasksMax) => [['pids.max', String(tasksMax)]],
  limitFile: { cpu: 'cpu.max', memory: 'memory.max', pids: 'pids.max' },
  oomFile: 'memory.events',
}
