// The sessions that this engine holds, by node, and who wants to hear when that changes.
//
// Invariants
// 1. A node has one session here. One that left on purpose is out of the table, and kept aside until its connection ends.
import type { NodeSession } from '#engine/gateway/node-session.ts'

export class SessionTable {
  readonly #byNode = new Map<string, NodeSession>()
  readonly #leavers = new Set<NodeSession>()
  readonly #listeners = new Set<(nodeRecordId: string) => void>()

  get size(): number {
    return this.#byNode.size
  }

  get(nodeRecordId: string): NodeSession | undefined {
    return this.#byNode.get(nodeRecordId)
  }

  /** Those that take work. */
  live(): NodeSession[] {
    return [...this.#byNode.values()]
  }

  /** All that have a connection. */
  all(): NodeSession[] {
    return [...this.#byNode.values(), ...this.#leavers]
  }

  add(session: NodeSession): void {
    this.#byNode.set(session.facts.nodeRecordId, session)
  }

  /** The node takes nothing new. False when the session is not its node's own any more. */
  setAside(session: NodeSession): boolean {
    const { nodeRecordId } = session.facts
    if (this.#byNode.get(nodeRecordId) !== session) return false
    this.#byNode.delete(nodeRecordId)
    this.#leavers.add(session)
    return true
  }

  /** The connection is over. True when the session had been set aside before. */
  remove(session: NodeSession): boolean {
    const { nodeRecordId } = session.facts
    if (this.#byNode.get(nodeRecordId) === session) this.#byNode.delete(nodeRecordId)
    return this.#leavers.delete(session)
  }

  onChange(fn: (nodeRecordId: string) => void): () => void {
    this.#listeners.add(fn)
    return () => void this.#listeners.delete(fn)
  }

  changed(nodeRecordId: string): void {
    for (const fn of this.#listeners) fn(nodeRecordId)
  }
}
