// Certificates of nodes (ND-5): given at the welcome, renewed over the session at half of their life.
import type { Clock, Instant } from '#lib/clock.ts'
import type { GatewayKeys } from '#engine/gateway/gateway-keys.ts'
import type { NodeSession, SessionFacts } from '#engine/gateway/node-session.ts'

export class Certificates {
  readonly #clock: Clock
  readonly #keys: GatewayKeys
  readonly #halfLifeMs: number

  constructor(keys: GatewayKeys, clock: Clock, lifeMs: number) {
    this.#keys = keys
    this.#clock = clock
    this.#halfLifeMs = lifeMs / 2
  }

  /**
   * The certificate of a welcome, and the monotonic time at which it is to be renewed. A fleet that reconnects holds
   * good ones: issuing one costs more than all the rest of a welcome.
   */
  async forWelcome(
    facts: SessionFacts,
    peer: string,
    held: { der: Uint8Array; notAfter: Instant } | undefined,
  ): Promise<{ certificate: Uint8Array; renewAt: number }> {
    const leftMs = held ? held.notAfter - this.#clock.now() : 0
    const kept = held && leftMs > this.#halfLifeMs ? held.der : undefined
    const certificate = kept ?? (await this.#issue(facts, peer))
    const inMs = kept ? leftMs - this.#halfLifeMs : this.#halfLifeMs
    return { certificate, renewAt: this.#clock.monotonic() + inMs }
  }

  /** True when its time has come. */
  due(session: NodeSession): boolean {
    return this.#clock.monotonic() >= session.renewAt
  }

  async renew(session: NodeSession): Promise<void> {
    session.renewAt = this.#clock.monotonic() + this.#halfLifeMs
    const certificate = await this.#issue(session.facts, session.peer)
    session.send({ t: 'renew', certificate })
  }

  #issue(facts: SessionFacts, publicKey: string): Promise<Uint8Array> {
    const { orgId, nodeRecordId, identityGeneration } = facts
    const node = { orgId, nodeId: nodeRecordId, generation: identityGeneration }
    return this.#keys.certify({ ...node, publicKey })
  }
}
