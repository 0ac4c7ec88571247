// Every call of every procedure goes through here, in this order: who, may they, how often, is the input right, has it
// been called before, then the handler in its transaction.
// 1. Nothing of the input is looked at before the caller is known, but for `orgId`, which decides what they may do.
// 2. With `tx: 'one'` the change, its audit event and its idempotency key are one transaction; what must not see
//    uncommitted rows runs after it.
// 3. The output is checked before the commit: an answer that breaks the contract undoes what it is about.
import type { IncomingHttpHeaders } from 'node:http'
import type { Meta } from '#api/base.ts'
import type { Audit, Call, Caller, TxCall } from '#engine/call.ts'
import { authorize, resolveCaller } from '#engine/caller.ts'
import type { Engine } from '#engine/engine.ts'
import { idempotently, keyOf, type IdempotentCall } from '#engine/kernel-idempotency.ts'
import { invalidInput, isGone, toContractError } from '#engine/kernel-errors.ts'
import type { AddressLimit, LimitName } from '#engine/rate-limit.ts'
import { isStorable, textFaults } from '#engine/kernel-text.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { newId } from '#lib/id.ts'
import { transaction, type Tx } from '#store/connect.ts'
import { insertEvent } from '#store/events.ts'

/** What the HTTP side knows of a request. */
export type HttpContext = {
  engine: Engine
  headers: IncomingHttpHeaders
  requestId: string
  ip: string
  /** Sets a header of the answer. */
  header?(name: string, value: string): void
}

/** Checks a value; throws INVALID with every fault, or the value as the contract has it. */
export type Check = (value: unknown) => Promise<unknown>

/** How a procedure is run; the three ways that `handle.ts` builds. */
export type Runner =
  | { kind: 'tx'; run(call: TxCall, input: unknown): Promise<unknown> }
  | { kind: 'free'; run(call: Call, input: unknown): Promise<unknown> }
  | {
      kind: 'once'
      run(call: TxCall, input: unknown): Promise<{ subject: string; answer: unknown }>
      replay(call: TxCall, subject: string): Promise<unknown>
    }

export type Procedure = { meta: Meta; runner: Runner; checkInput: Check; checkOutput: Check }

export type Request = { input: unknown; path: readonly string[]; signal: AbortSignal | undefined }

/** Runs one call; throws only errors of the contract. */
export async function runCall(
  procedure: Procedure,
  context: HttpContext,
  request: Request,
): Promise<unknown> {
  const { engine, requestId } = context
  const name = request.path.join('.')
  const began = engine.clock.monotonic()
  const observe = (code: string): void =>
    engine.metrics.calls.labels(name, code).observe((engine.clock.monotonic() - began) / 1000)
  try {
    const output = await admitted(procedure, context, { ...request, name })
    observe('OK')
    return output
  } catch (error) {
    if (isGone(error, request.signal)) {
      observe('GONE')
      throw error
    }
    const told = toContractError(error, { log: engine.log, requestId, procedure: name })
    observe(told.code)
    const { retryAfterMs } = told.data ?? {}
    if (typeof retryAfterMs === 'number')
      context.header?.('retry-after', String(Math.ceil(retryAfterMs / 1000)))
    throw told
  }
}

type Named = Request & { name: string }

async function admitted(
  procedure: Procedure,
  context: HttpContext,
  request: Named,
): Promise<unknown> {
  const { engine } = context
  const { meta } = procedure
  const caller = await resolveCaller(engine, context.headers)
  const org = orgOf(request.input)
  const needsOrg = meta.role !== 'signed-in'
  if (needsOrg && org === undefined) {
    // The check of the input says so, to a caller who is known.
    await procedure.checkInput(request.input)
    throw new Error(`invariant broken: ${request.name} took an input without an org`)
  }
  const allowed =
    org !== undefined && needsOrg
      ? await authorize(engine, caller, { procedure: request.name, meta, org })
      : ({ orgId: '', role: 'guest' } as const)
  if (meta.limit) limitRate(engine, meta.limit, allowed.orgId)
  const checked = await procedure.checkInput(request.input)
  const input = needsOrg ? { ...objectOf(checked), orgId: allowed.orgId } : checked
  return perform(procedure, begin(context, { caller, ...allowed, signal: request.signal }), {
    input,
    name: request.name,
    key: meta.idempotency ? keyOf(context.headers) : undefined,
  })
}

/** As the contract's `orgInput` has it. */
const ORG_LENGTH_MAX = 64

function orgOf(input: unknown): string | undefined {
  const { orgId } = objectOf(input)
  if (typeof orgId !== 'string' || orgId === '' || orgId.length > ORG_LENGTH_MAX) return undefined
  return isStorable(orgId) ? orgId : undefined
}

const objectOf = (value: unknown): { [key: string]: unknown } =>
  typeof value === 'object' && value !== null ? { ...value } : {}

/** Throws RATE_LIMITED when the org has called too often. */
export function limitRate(engine: Engine, limit: NonNullable<Meta['limit']>, orgId: string): void {
  const message = `Too many calls of ${limit} a minute for this organization`
  take(engine, { limit, of: orgId, message })
}

/** Throws RATE_LIMITED when the address, as `networkOf` has it, has called too often. */
export function limitAddress(engine: Engine, limit: AddressLimit, network: string): void {
  take(engine, { limit, of: network, message: 'Too many tries from this address' })
}

type Taken = { limit: LimitName; of: string; message: string }

function take(engine: Engine, { limit, of, message }: Taken): void {
  const waitMs = engine.rateLimit.take(limit, of)
  if (waitMs === undefined) return
  engine.metrics.limited.labels(limit).inc()
  throw new AppError('RATE_LIMITED', message, {
    details: {
      reason: 'RATE_LIMITED',
      retryAfterMs: waitMs,
      next: `Try again in ${Math.ceil(waitMs / 1000)} s`,
    },
  })
}

type Admitted = {
  caller: Caller
  orgId: string
  role: Call['role']
  signal: AbortSignal | undefined
}

/** A call and what it asked to be done after its transaction. */
type Begun = { call: Call; later: (() => void)[] }

function begin(context: HttpContext, { caller, orgId, role, signal }: Admitted): Begun {
  const { engine, requestId, ip } = context
  const later: (() => void)[] = []
  const audit = async (tx: Tx, { kind, subject, data = {} }: Audit): Promise<void> => {
    const now = engine.clock.now()
    await insertEvent(tx, {
      id: newId('evt', now, engine.random),
      orgId: orgId === '' ? null : orgId,
      at: new Date(now),
      kind,
      actorKind: caller.kind,
      actor: caller.id,
      ip,
      requestId,
      subject,
      data: { ...data, actor_name: caller.name },
    })
  }
  const call: Call = {
    engine,
    caller,
    orgId,
    role,
    requestId,
    ip,
    signal: signal ?? new AbortController().signal,
    audit,
    afterCommit: (fn) => void later.push(fn),
    settle: async () => undefined,
  }
  return { call, later }
}

type Performed = { input: unknown; name: string; key: string | undefined }

async function perform(procedure: Procedure, begun: Begun, at: Performed): Promise<unknown> {
  const { runner, checkOutput } = procedure
  const { call, later } = begun
  const idempotent: IdempotentCall | undefined =
    at.key === undefined
      ? undefined
      : { orgId: call.orgId, procedure: at.name, key: at.key, input: at.input }
  if (runner.kind === 'free') {
    const run = async (settle?: Call['settle']): Promise<unknown> =>
      checkOutput(await runner.run(settle ? { ...call, settle } : call, at.input))
    const way = procedure.meta.idempotency === 'at-most-once' ? 'atMostOnce' : 'free'
    const output = idempotent ? await idempotently[way](call.engine, idempotent, run) : await run()
    finish(call, later)
    return output
  }
  const output = await transaction(
    call.engine.db,
    async (tx) => {
      later.length = 0
      const txCall: TxCall = { ...call, tx }
      if (runner.kind === 'once')
        return checkOutput(
          await idempotently.once(txCall, idempotent, {
            run: () => runner.run(txCall, at.input),
            replay: (subject) => runner.replay(txCall, subject),
          }),
        )
      const run = async (): Promise<unknown> => checkOutput(await runner.run(txCall, at.input))
      return idempotent ? idempotently.replayed(txCall, idempotent, run) : run()
    },
    { attemptsMax: ATTEMPTS_MAX },
  )
  finish(call, later)
  return output
}

/** Handlers do nothing outside the database before the commit: after a deadlock the call is run again. */
const ATTEMPTS_MAX = 3

function finish(call: Call, later: readonly (() => void)[]): void {
  for (const fn of later)
    try {
      fn()
    } catch (error) {
      call.engine.log.error({ err: error, requestId: call.requestId }, messageOf(error))
    }
}

type Schema = {
  '~standard': {
    validate(value: unknown): unknown
  }
}

type Validated = {
  value?: unknown
  issues?: readonly { message: string; path?: readonly (PropertyKey | { key: PropertyKey })[] }[]
}

/** The check of an input: every fault is the caller's. */
export function inputCheck(schema: Schema | undefined, rawText?: readonly string[]): Check {
  return async (value) => {
    if (!schema) return value
    // A call without a body means an empty one, so that each missing field is named.
    const result = (await schema['~standard'].validate(value ?? {})) as Validated
    const faults = result.issues ?? textFaults(result.value, rawText)
    if (faults.length > 0) throw invalidInput(faults)
    return result.value
  }
}

/** The check of an output: a fault is ours. */
export function outputCheck(schema: Schema | undefined): Check {
  return async (value) => {
    if (!schema) return value
    const result = (await schema['~standard'].validate(value)) as Validated
    if (!result.issues) return result.value
    const faults = result.issues.map(
      (issue) => `${(issue.path ?? []).map(String).join('.')}: ${issue.message}`,
    )
    throw new Error(`an answer breaks the contract: ${faults.join('; ')}`)
  }
}
