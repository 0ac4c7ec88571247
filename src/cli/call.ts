// The typed client. Every call goes through here:
// 1. Its input is checked against the contract first, so that a refusal costs no round trip and names the field.
// 2. A create carries an Idempotency-Key, and keeps it through its repetitions: none of them makes a second record.
// 3. What is repeated: a request that reached no server; a read or a keyed create whose connection broke, or whose
//    engine said UNAVAILABLE. Nothing else.
// 4. What goes wrong is an AppError.
import { createORPCClient, ORPCError, type ClientLink } from '@orpc/client'
import { RPCLink } from '@orpc/client/fetch'
import type { ContractRouterClient } from '@orpc/contract'
import { z } from 'zod'
import { contract } from '#api/contract.ts'
import type { Meta } from '#api/base.ts'
import { ConnectionLost, httpFetch, NotConnected } from '#cli/http-fetch.ts'
import type { Credential, Target } from '#cli/target.ts'
import { backoffMs } from '#lib/backoff.ts'
import type { Clock } from '#lib/clock.ts'
import { AppError, statusOf, type Code, type ErrorDetails } from '#lib/error.ts'
import type { Random } from '#lib/random.ts'

type CallContext = { idempotencyKey?: string }
export type Api = ContractRouterClient<typeof contract, CallContext>

/** With these pauses 1.4 to 2.8 s in all: longer than an engine takes to hand its port to the next one. */
const ATTEMPTS_MAX = 4
const HALF_PAUSE = { baseMs: 200, capMs: 800 }

type Deps = { target: Target; version: string; clock: Clock; random: Random; signal: AbortSignal }

export function createApi(deps: Deps): Api {
  const { target, version } = deps
  const link = new RPCLink<CallContext>({
    url: `${target.url}/rpc`,
    headers: ({ context }) => ({
      ...authorization(target.credential),
      'user-agent': `ccp/${version}`,
      ...(context.idempotencyKey === undefined
        ? {}
        : { 'idempotency-key': context.idempotencyKey }),
    }),
    fetch: httpFetch,
  })
  const checked: ClientLink<CallContext> = {
    call: async (path, input, options) => {
      const procedure = procedureAt(path)
      checkInput(procedure.schema, input)
      const context = procedure.keyed ? { idempotencyKey: newKey(deps.random) } : {}
      const once = async (): Promise<unknown> => {
        const answer = await link.call(path, input, { ...options, context, signal: deps.signal })
        if (typeof answer !== 'object' || answer === null) throw new Error('the answer is empty')
        return answer
      }
      return repeat(once, procedure.keyed || procedure.reads, deps)
    },
  }
  return createORPCClient(checked)
}

/** How a credential travels. */
export function authorization(credential: Credential): Record<string, string> {
  if (credential.kind === 'none') return {}
  return credential.kind === 'api-key'
    ? { 'x-api-key': credential.secret }
    : { authorization: `Bearer ${credential.secret}` }
}

const newKey = (random: Random): string => `ccp-${Buffer.from(random.bytes(16)).toString('hex')}`

type Called = { schema: z.ZodType | undefined; keyed: boolean; reads: boolean }
type Node = { '~orpc'?: { meta: Meta; route: { method?: string }; inputSchema?: unknown } }

function procedureAt(path: readonly string[]): Called {
  let at: unknown = contract
  for (const name of path)
    at = typeof at === 'object' && at !== null ? Reflect.get(at, name) : undefined
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the contract's leaves have this shape; checked below
  const inner = (at as Node | undefined)?.['~orpc']
  if (inner === undefined) throw new Error(`the contract has no ${path.join('.')}`)
  return {
    schema: inner.inputSchema instanceof z.ZodType ? inner.inputSchema : undefined,
    // What runs at most once is not repeated, and its answer need not be kept.
    keyed: inner.meta.idempotency !== undefined && inner.meta.idempotency !== 'at-most-once',
    reads: inner.route.method === 'GET',
  }
}

/** The input of a procedure (`compute.functions.deploy`) before it is sent. Errors: INVALID. */
export function checkFields(procedure: string, input: object): void {
  checkInput(procedureAt(procedure.split('.')).schema, input)
}

/** Tries again what reached no server and, when `safe`, what may have run already. Errors: AppError. */
export async function repeat<T>(once: () => Promise<T>, safe: boolean, deps: Deps): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await once()
    } catch (error) {
      deps.signal.throwIfAborted()
      const refusal = refusalOf(error, deps.target)
      const again =
        error instanceof NotConnected ||
        (safe && refusal.code === 'UNAVAILABLE' && !isOurs(error)) ||
        // The first try of ours, whose connection broke, still runs: its answer will be this one's.
        (attempt > 0 && refusal.details.reason === 'IDEMPOTENCY_IN_PROGRESS')
      if (!again || attempt + 1 >= ATTEMPTS_MAX) throw refusal
      await deps.clock.sleep(pauseMs(attempt, deps.random), deps.signal)
    }
  }
}

/** Half of it is certain: by full jitter all tries together were over in a third of a second now and then. */
function pauseMs(attempt: number, random: Random): number {
  const certain = Math.min(HALF_PAUSE.capMs, HALF_PAUSE.baseMs * 2 ** attempt)
  return certain + backoffMs(attempt, HALF_PAUSE, random)
}

/** An answer that says something about the program, not about this moment. */
const isOurs = (error: unknown): boolean =>
  !(error instanceof ORPCError) && !(error instanceof ConnectionLost)

/** Every fault of the input in one refusal; the first is the message. Errors: INVALID. */
export function checkInput(schema: z.ZodType | undefined, input: unknown): void {
  const result = schema?.safeParse(input)
  if (result === undefined || result.success) return
  const faults = new Set(result.error.issues.map((issue) => describeIssue(issue, input)))
  const [first = 'the input is invalid', ...also] = faults
  const next = flagHint(result.error.issues[0]?.path[0])
  throw new AppError('INVALID', first, { details: { also, ...(next && { next }) } })
}

/** The contract's name of a field is not always the flag's. */
function flagHint(field: PropertyKey | undefined): string | undefined {
  // The one field of two words that no flag sets.
  if (typeof field !== 'string' || field === 'nodeId' || !/[A-Z]/.test(field)) return undefined
  return `The flag is --${field.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
}

function describeIssue(issue: z.core.$ZodIssue, input: unknown): string {
  const field = issue.path.map(String).join('.')
  const named = field === '' || issue.message.includes(field) ? '' : `${field}: `
  let value = input
  for (const key of issue.path)
    value = typeof value === 'object' && value !== null ? Reflect.get(value, key) : undefined
  // A rule between fields names them itself.
  return `${named}${issue.message}${issue.code === 'custom' ? '' : describeValue(value)}`
}

/** ', not 99': a short value that the person typed; no secret is short and wrong. */
function describeValue(value: unknown): string {
  if (typeof value === 'number' && !Number.isNaN(value)) return `, not ${value}`
  return typeof value === 'string' && value.length <= 64 ? `, not '${value}'` : ''
}

const isCode = (text: string): text is Code => Object.hasOwn(statusOf, text)

/** Whatever the client threw, as a refusal that says what to do. */
export function refusalOf(error: unknown, target: Target): AppError {
  if (error instanceof AppError) return error
  if (error instanceof NotConnected)
    return new AppError('UNAVAILABLE', `no engine answers at ${target.url} (${error.reason})`, {
      details: {
        reason: 'NOT_CONNECTED',
        next:
          target.sessions === undefined
            ? 'Start a platform on this machine with `ccp dev`, or set CCP_API_URL to where one runs'
            : 'The engine of `ccp dev` on this machine starts again: repeat it in a few seconds',
      },
    })
  if (error instanceof ConnectionLost)
    return new AppError('UNAVAILABLE', `the connection to ${target.url} broke: ${error.message}`, {
      details: {
        reason: 'CONNECTION_LOST',
        next: 'The engine may have done it: look, then repeat',
      },
    })
  if (!(error instanceof ORPCError))
    return new AppError('UNAVAILABLE', `${target.url} does not answer like a Clutch engine`, {
      cause: error,
      details: { reason: 'NOT_AN_ENGINE', next: 'Check CCP_API_URL' },
    })
  return fromAnswer(error, target)
}

function fromAnswer(error: ORPCError<string, unknown>, target: Target): AppError {
  const data: ErrorDetails =
    typeof error.data === 'object' && error.data !== null ? { ...error.data } : {}
  const code = isCode(error.code) ? error.code : codeOf(error.status)
  if (code === 'NOT_FOUND' && (data.reason === 'NO_SUCH_PATH' || !error.defined))
    return new AppError('NOT_FOUND', `the engine at ${target.url} does not know this call`, {
      details: {
        reason: 'UNKNOWN_CALL',
        next: 'It is older than this ccp: upgrade it, or use its own ccp',
      },
    })
  if (code === 'UNAUTHENTICATED' && data.next === undefined)
    data.next =
      target.credential.kind === 'none'
        ? 'Sign in with `ccp auth login`, or set CCP_API_KEY'
        : `The credential came from ${target.credential.from}: sign in again with \`ccp auth login\`, or set another`
  return new AppError(code, error.message, { details: data })
}

function codeOf(status: number): Code {
  const found = Object.entries(statusOf).find(([, known]) => known === status)?.[0]
  return found !== undefined && isCode(found) ? found : status < 500 ? 'INVALID' : 'INTERNAL'
}
