// One call of a procedure, as its handler sees it: already authenticated, authorized and validated by the kernel.
import type { Role } from '#api/base.ts'
import type { Engine } from '#engine/engine.ts'
import type { Tx } from '#store/connect.ts'

/** Who calls. A key acts for one org; a person for each org that they are a member of. */
export type Caller = {
  kind: 'user' | 'api-key'
  id: string
  name: string
  orgs: readonly { id: string; slug: string; name: string; role: Role }[]
  platformOperator: boolean
}

export type Audit = { kind: string; subject: string | null; data?: Record<string, unknown> }

export type Call = {
  engine: Engine
  caller: Caller
  /** The org of the input, resolved to its id (a slug is accepted); '' for procedures without one. */
  orgId: string
  role: Role
  requestId: string
  ip: string
  signal: AbortSignal
  /** Writes an audit event in the given transaction: it is there if and only if the change is. */
  audit(tx: Tx, event: Audit): Promise<void>
  /** Runs after the kernel's transaction committed: pokes to other parts that must not see uncommitted rows. */
  afterCommit(fn: () => void): void
  /**
   * For a call without the kernel's transaction: stores its answer under the idempotency key, if there is one, in the
   * handler's own transaction. A repeat then finds it even if the engine died right after the commit.
   */
  settle(tx: Tx, answer: unknown): Promise<void>
}

/** A call whose contract says `tx: 'one'`: the kernel commits when the handler returns. */
export type TxCall = Call & { tx: Tx }
