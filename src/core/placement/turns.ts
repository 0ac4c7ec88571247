// Who gets the next room on a node that is full (PL-4): orgs take turns, and within an org its versions.
// 1. Room moves only from who holds more of the node to who holds less: to who holds nothing at all, or if it makes their
//    shares more equal. So shares settle, and what cannot be shared goes round.
// 2. Nothing moves before who wants it got no more for a turn, and who has it had it for a turn. Moving costs a child's
//    start: a turn lasts about as long between orgs, and longer within one, whose throughput is its own affair.
// 3. Of those who want the same room the longest hungry is first.

/** Between orgs: about what a cold child costs. */
export const TURN_OF_ORG_MS = 100
/** Between the versions of one org. */
export const TURN_OF_VERSION_MS = 500

export type Party = { orgId: string; versionId: string }
/** What a version holds of a node: 0 to 1. */
export type Holding = Party & { share: number }
/** A version whose invocations wait; since when it got no more room; `unit` is the share of the node that it wants. */
export type Claim = Party & { hungryMs: number; unit: number }
/** A version that has room on the node, or would take it. */
export type Holder = Party & { heldMs: number }

/** Shares are sums of fractions. */
const EPSILON = 1e-9

/** Whether room on the node that `holder` has is `claim`'s turn now, by what everybody holds there. */
export function isTurnOf(claim: Claim, holder: Holder, held: readonly Holding[]): boolean {
  if (claim.versionId === holder.versionId) return false
  const turnMs = claim.orgId === holder.orgId ? TURN_OF_VERSION_MS : TURN_OF_ORG_MS
  if (claim.hungryMs < turnMs || holder.heldMs < turnMs) return false
  const [mine, theirs] = shares(claim, holder, held)
  if (mine < EPSILON) return theirs > mine
  return mine + claim.unit <= theirs - claim.unit + EPSILON
}

/** Whether free room on the node is `other`'s rather than `claim`'s, when both want it. */
export function isBefore(other: Claim, claim: Claim, held: readonly Holding[]): boolean {
  if (other.versionId === claim.versionId) return false
  const turnMs = other.orgId === claim.orgId ? TURN_OF_VERSION_MS : TURN_OF_ORG_MS
  if (other.hungryMs < turnMs) return false
  const [theirs, mine] = shares(other, claim, held)
  if (Math.abs(theirs - mine) > EPSILON) return theirs < mine
  return other.hungryMs > claim.hungryMs
}

/** Between orgs the org's share counts, within an org the version's. */
function shares(a: Party, b: Party, held: readonly Holding[]): [number, number] {
  const by = a.orgId === b.orgId ? 'versionId' : 'orgId'
  const of = (party: Party): number =>
    held.reduce((sum, one) => sum + (one[by] === party[by] ? one.share : 0), 0)
  return [of(a), of(b)]
}
