// Where work goes (PL-1): filter by checks in a fixed order, rank by best fit, pick among the best few.
// Nothing here reads `contributor` (000-16), and no caller can name a node (PL-6).
import type { PlacementNode, Runtime } from '#core/node/node.ts'
import { schedulable, type Bucket } from '#core/node/schedulable.ts'
import type { Random } from '#lib/random.ts'

export type Workload = {
  orgId: string
  runtime: Runtime
  cpuMillis: number
  /** The workload's own, with what its runner needs beside it. */
  memMb: number
  allowCommunity: boolean
  region: string | null
}

export type CheckName =
  | 'schedulable'
  | 'org'
  | 'capability'
  | 'region'
  | 'trust-tier'
  | 'cpu'
  | 'memory'
export type Fit =
  | { ok: true }
  | { ok: false; check: CheckName; bucket: Bucket | null; message: string }

/** Checks in order; the later the first failure, the nearer the miss. */
export const CHECKS: readonly CheckName[] = [
  'org',
  'capability',
  'trust-tier',
  'region',
  'schedulable',
  'cpu',
  'memory',
]

/** How many of the best are drawn from: engines that place at once then rarely want the same row. */
export const BEST_FEW = 3

const refuse = (check: CheckName, message: string, bucket: Bucket | null = null): Fit => ({
  ok: false,
  check,
  bucket,
  message,
})

/** What never fits is told apart from what is only taken now. */
function shortOf(
  { want, has, used }: { want: number; has: number; used: number },
  unit: string,
): string | undefined {
  if (want <= has - used) return undefined
  if (want > has) return `${want} ${unit} are wanted, it offers ${has} in all`
  return `${want} ${unit} are wanted, ${has - used} of ${has} are free`
}

const rules: Record<CheckName, (node: PlacementNode, work: Workload) => Fit> = {
  org: (node, work) =>
    node.orgId === work.orgId ? { ok: true } : refuse('org', 'it serves another organization'),
  capability: (node, work) => {
    if (node.runtimes === null) return refuse('capability', 'it has never registered')
    if (node.runtimes.includes(work.runtime)) return { ok: true }
    return refuse(
      'capability',
      `it offers ${node.runtimes.join(', ') || 'nothing'}, not ${work.runtime}`,
    )
  },
  'trust-tier': (node, work) =>
    node.trustTier === 'secure' || work.allowCommunity
      ? { ok: true }
      : refuse('trust-tier', 'it is a community node and the workload does not allow community'),
  region: (node, work) =>
    work.region === null || node.region === work.region
      ? { ok: true }
      : refuse('region', `it is in ${node.region ?? 'no region'}, not ${work.region}`),
  schedulable: (node) => {
    const verdict = schedulable(node)
    return verdict.ok ? { ok: true } : refuse('schedulable', verdict.message, verdict.bucket)
  },
  cpu: (node, work) => {
    const has = node.cpuMillis ?? 0
    const message = shortOf({ want: work.cpuMillis, has, used: node.usedCpuMillis }, 'millicores')
    return message === undefined ? { ok: true } : refuse('cpu', message)
  },
  memory: (node, work) => {
    const has = node.memMb ?? 0
    const message = shortOf({ want: work.memMb, has, used: node.usedMemMb }, 'MiB')
    return message === undefined ? { ok: true } : refuse('memory', message)
  },
}

/** The first check that the node fails for this workload. */
export function fits(node: PlacementNode, work: Workload): Fit {
  for (const name of CHECKS) {
    const fit = rules[name](node, work)
    if (!fit.ok) return fit
  }
  return { ok: true }
}

const ROOM: ReadonlySet<CheckName> = new Set(['cpu', 'memory'])
const BUT_ROOM = CHECKS.filter((name) => !ROOM.has(name))

/** Whether the node may receive this work, room aside: what already has its room there may run. */
export function admissible(node: PlacementNode, work: Workload): boolean {
  return BUT_ROOM.every((name) => rules[name](node, work).ok)
}

/** The share of the node that so much of it is: of what it has least of (dominant share, DRF, NSDI 2011). */
export function shareOf(node: PlacementNode, held: { cpuMillis: number; memMb: number }): number {
  return Math.max(held.cpuMillis / (node.cpuMillis || 1), held.memMb / (node.memMb || 1))
}

/** Whether the node could run it once it is up, accepted and has room: worth waiting for (D43). */
export function couldEverFit(node: PlacementNode, work: Workload): boolean {
  const empty = { ...node, usedCpuMillis: 0, usedMemMb: 0 }
  return CHECKS.every((name) => {
    const fit = rules[name](empty, work)
    return fit.ok || (name === 'schedulable' && fit.bucket !== 'excluded')
  })
}

export type RankDeps = {
  random: Random
  /** Ids of nodes that hold the workload's bytes already. */
  cached: ReadonlySet<string>
  /** Ids of nodes that failed of themselves a moment ago: tried when nothing else fits. */
  avoid?: ReadonlySet<string>
}

/**
 * Candidates in the order to try: nodes that already hold the bytes first, then the tightest fit, so that
 * big room stays whole; the best few of the first kind are shuffled. The same nodes, work and seed give the
 * same order, however the nodes were listed.
 */
export function rank(
  nodes: readonly PlacementNode[],
  work: Workload,
  deps: RankDeps,
): PlacementNode[] {
  const slack = (n: PlacementNode): number =>
    ((n.cpuMillis ?? 0) - n.usedCpuMillis - work.cpuMillis) / 1000 +
    ((n.memMb ?? 0) - n.usedMemMb - work.memMb) / 1024
  const kind = (n: PlacementNode): number =>
    (deps.avoid?.has(n.id) ? 2 : 0) + (deps.cached.has(n.id) ? 0 : 1)
  const scored = nodes
    .filter((node) => fits(node, work).ok)
    .map((node) => ({ node, kind: kind(node), slack: slack(node) }))
    .toSorted((a, b) => a.kind - b.kind || a.slack - b.slack || (a.node.id < b.node.id ? -1 : 1))
  const few = scored.slice(0, BEST_FEW).filter((one) => one.kind === scored[0]?.kind)
  const rest = scored.slice(few.length)
  const shuffled: typeof scored = []
  while (few.length > 0) shuffled.push(...few.splice(deps.random.below(few.length), 1))
  return [...shuffled, ...rest].map(({ node }) => node)
}

export type Explained = { node: PlacementNode; fit: Fit }

/** Each node with its first failing check (PL-3): those that fit, then the nearest miss first. */
export function explain(nodes: readonly PlacementNode[], work: Workload): Explained[] {
  const depth = (fit: Fit): number => (fit.ok ? CHECKS.length : CHECKS.indexOf(fit.check))
  return nodes
    .map((node) => ({ node, fit: fits(node, work) }))
    .toSorted((a, b) => depth(b.fit) - depth(a.fit) || (a.node.nodeId < b.node.nodeId ? -1 : 1))
}

/** One line for a refusal: the nearest miss, or what to enroll. */
export function summary(explained: readonly Explained[], work: Workload): string {
  const first = explained[0]
  if (!first) {
    const region = work.region === null ? '' : ` in region ${work.region}`
    return `no node can run this: enroll one with the ${work.runtime} runtime${region}, ${work.cpuMillis} millicores and ${work.memMb} MiB`
  }
  const fitting = explained.filter(({ fit }) => fit.ok).length
  if (fitting > 0) return `${fitting} of ${explained.length} nodes can run this now`
  const { node, fit } = first
  const why = fit.ok ? '' : fit.message
  if (explained.length === 1) return `the only node, ${node.nodeId}, cannot run this: ${why}`
  return `none of ${explained.length} nodes can run this; the nearest is ${node.nodeId}: ${why}`
}
