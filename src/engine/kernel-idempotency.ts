// The same create twice (D40, D51): the same key with the same body answers as the first, with another body it is refused.
// 1. Two calls with one key never both run. Inside a transaction the second waits for the first's end.
//    What runs at most once never runs again under its key, not even when nobody knows whether it ran to its end.
// 2. An answer that holds a secret is never stored: what is stored is the id of what was made, and a replay reads that.
import type { IncomingHttpHeaders } from 'node:http'
import { z } from 'zod'
import type { Call, TxCall } from '#engine/call.ts'
import type { Engine } from '#engine/engine.ts'
import { ANSWER_KEPT_MAX } from '#core/function/limits.ts'
import { sameBytes, sha256 } from '#lib/bytes.ts'
import type { Instant } from '#lib/clock.ts'
import { AppError } from '#lib/error.ts'
import type { Tx } from '#store/connect.ts'
import {
  answerKey,
  claimKey,
  reclaimKey,
  releaseKey,
  type KeyOf,
  type Seen,
} from '#store/idempotency.ts'

export type IdempotentCall = { orgId: string; procedure: string; key: string; input: unknown }

const KEY_PATTERN = /^[\x21-\x7e]{1,255}$/
/** A call outside a transaction that has not ended for this long lost its engine, and that did not come back. */
const CLAIM_LOST_AFTER_MS = 5 * 60_000
/** No call runs longer: an invocation's own time (D44), its wait for room (D43), and what the engine adds. */
const RUNS_FOR_MAX_MS = 20 * 60_000

/** The header's key, checked; undefined when there is none. */
export function keyOf(headers: IncomingHttpHeaders): string | undefined {
  const value = headers['idempotency-key']
  if (value === undefined) return undefined
  if (typeof value === 'string' && KEY_PATTERN.test(value)) return value
  throw new AppError(
    'INVALID',
    'Idempotency-Key must be 1 to 255 printable characters without spaces',
    {
      details: { reason: 'IDEMPOTENCY_KEY', next: 'Send one random key a create, such as a UUID' },
    },
  )
}

const Subject = z.object({ subject: z.string() })

export const idempotently = {
  /** In the call's transaction; the answer is stored with the change. */
  async replayed(call: TxCall, of: IdempotentCall, run: () => Promise<unknown>): Promise<unknown> {
    const requestHash = hashOf(of.input)
    const now = call.engine.clock.now()
    const seen = await claimKey(call.tx, keyRow(of), { requestHash, now })
    if (seen) return answerOf(seen, requestHash)
    const answer = await run()
    await answerKey(call.tx, keyRow(of), { claimedAt: now, answer })
    return answer
  },

  /** In the call's transaction, for answers with a secret. */
  async once(
    call: TxCall,
    of: IdempotentCall | undefined,
    way: {
      run: () => Promise<{ subject: string; answer: unknown }>
      replay: (subject: string) => Promise<unknown>
    },
  ): Promise<unknown> {
    if (!of) return (await way.run()).answer
    const requestHash = hashOf(of.input)
    const now = call.engine.clock.now()
    const seen = await claimKey(call.tx, keyRow(of), { requestHash, now })
    if (seen) return way.replay(Subject.parse(answerOf(seen, requestHash)).subject)
    const { subject, answer } = await way.run()
    await answerKey(call.tx, keyRow(of), { claimedAt: now, answer: { subject } })
    return answer
  },

  /** Around a call that holds no transaction: its key is claimed first, and given back if it fails. */
  async free(
    engine: Engine,
    of: IdempotentCall,
    run: (settle: Call['settle']) => Promise<unknown>,
  ): Promise<unknown> {
    return whileClaimed(engine, of, async ({ key, requestHash, now, others }) => {
      const seen = await claimKey(engine.db, key, { requestHash, now, engineId: engine.id })
      if (seen && !(await takenOver(engine, key, { seen, alone: others === 0, requestHash, now })))
        return answerOf(seen, requestHash)
      return claimed(engine, { key, now }, run)
    })
  },

  /** Around a call that acts beyond the database: it gives its key back only when it was refused before it acted. */
  async atMostOnce(
    engine: Engine,
    of: IdempotentCall,
    run: () => Promise<unknown>,
  ): Promise<unknown> {
    return whileClaimed(engine, of, async ({ key, requestHash, now, others }) => {
      const row = { requestHash, now, engineId: engine.id, atMostOnce: true }
      const seen = await claimKey(engine.db, key, row)
      if (!seen) return ranOnce(engine, { key, now }, run)
      const died = seen.engineId === engine.id && others === 0
      const old = now - seen.createdAt.getTime() > RUNS_FOR_MAX_MS
      return kept(answerOf(seen, requestHash, died || old ? unknownOutcome : underWay))
    })
  },
}

type Claim = {
  key: KeyOf
  requestHash: ReturnType<typeof hashOf>
  now: Instant
  /** Calls of this engine that run with the key already. */
  others: number
}

/** Counts the call among those that run here with its key, before the row: whoever finds the row must find it here too. */
async function whileClaimed(
  engine: Engine,
  of: IdempotentCall,
  act: (claim: Claim) => Promise<unknown>,
): Promise<unknown> {
  const key = keyRow(of)
  const name = JSON.stringify(key)
  const others = engine.claims.get(name) ?? 0
  engine.claims.set(name, others + 1)
  try {
    return await act({ key, requestHash: hashOf(of.input), now: engine.clock.now(), others })
  } finally {
    leave(engine, name)
  }
}

function leave(engine: Engine, name: string): void {
  const left = (engine.claims.get(name) ?? 1) - 1
  if (left > 0) engine.claims.set(name, left)
  else engine.claims.delete(name)
}

/** What stands for an answer that is too large to keep. */
const NOT_KEPT = z.strictObject({ notKept: z.literal(true) })

async function ranOnce(
  engine: Engine,
  { key, now }: { key: KeyOf; now: Instant },
  run: () => Promise<unknown>,
): Promise<unknown> {
  let answer: unknown
  try {
    answer = await run()
  } catch (error) {
    // A refusal of ours comes before anything ran. Of whatever else was thrown nobody knows.
    if (error instanceof AppError && error.code !== 'INTERNAL')
      await releaseKey(engine.db, key, now).catch(() => undefined)
    throw error
  }
  const large = Buffer.byteLength(JSON.stringify(answer)) > ANSWER_KEPT_MAX
  try {
    await answerKey(engine.db, key, { claimedAt: now, answer: large ? { notKept: true } : answer })
  } catch (error) {
    // It ran, and this caller hears how; who asks again hears that nobody knows.
    engine.log.warn({ err: error, procedure: key.procedure }, 'an answer was not kept')
  }
  return answer
}

function kept(answer: unknown): unknown {
  if (!NOT_KEPT.safeParse(answer).success) return answer
  throw new AppError(
    'CONFLICT',
    'The call with this Idempotency-Key ran; its answer was too large to keep',
    {
      details: {
        reason: 'IDEMPOTENCY_NOT_KEPT',
        next: 'Send a new key to run it again',
      },
    },
  )
}

const unknownOutcome = (): AppError =>
  new AppError(
    'CONFLICT',
    'The engine that ran the call with this Idempotency-Key died: nobody knows whether it ran to its end',
    {
      details: {
        reason: 'IDEMPOTENCY_OUTCOME_UNKNOWN',
        next: 'Look at what it was to do; send a new key to run it again',
      },
    },
  )

/** Runs a call whose key is claimed. */
async function claimed(
  engine: Engine,
  { key, now }: { key: KeyOf; now: Instant },
  run: (settle: Call['settle']) => Promise<unknown>,
): Promise<unknown> {
  let answer: unknown
  let settled = false
  const settle = async (tx: Tx, given: unknown): Promise<void> => {
    settled = await answerKey(tx, key, { claimedAt: now, answer: given })
    // Another call took the key over: what this one did must not stand beside what that one does.
    if (!settled) throw underWay()
  }
  try {
    answer = await run(settle)
  } catch (error) {
    // The store may be what failed; then the next call with this key takes the claim over.
    await releaseKey(engine.db, key, now).catch(() => undefined)
    throw error
  }
  if (!settled) await answerKey(engine.db, key, { claimedAt: now, answer })
  return answer
}

async function takenOver(
  engine: Engine,
  key: KeyOf,
  {
    seen,
    alone,
    requestHash,
    now,
  }: { seen: Seen; alone: boolean; requestHash: Buffer; now: Instant },
): Promise<boolean> {
  if (seen.answer !== null) return false
  const dead = alone && seen.engineId === engine.id
  if (!dead && now - seen.createdAt.getTime() < CLAIM_LOST_AFTER_MS) return false
  const claim = { from: seen.createdAt, now, requestHash, engineId: engine.id }
  return reclaimKey(engine.db, key, claim)
}

function answerOf(seen: Seen, requestHash: Buffer, unanswered = underWay): unknown {
  if (!sameBytes(seen.requestHash, requestHash))
    throw new AppError('CONFLICT', 'This Idempotency-Key was used with another body', {
      details: { reason: 'IDEMPOTENCY_KEY_REUSED', next: 'Send a new key with a new body' },
    })
  if (seen.answer === null) throw unanswered()
  return seen.answer
}

const underWay = (): AppError =>
  new AppError('CONFLICT', 'A call with this Idempotency-Key is under way', {
    details: { reason: 'IDEMPOTENCY_IN_PROGRESS', next: 'Try again in a moment' },
  })

const keyRow = ({ orgId, procedure, key }: IdempotentCall): KeyOf => ({ orgId, procedure, key })

/** Of the checked input: its fields stand in the contract's order, and a slug has become the org's id. */
const hashOf = (input: unknown): Buffer => sha256(JSON.stringify(input))
