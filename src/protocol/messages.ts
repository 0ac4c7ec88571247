// Every message of a session (§7), by the direction it travels. Unknown keys are ignored, so that versions can add.
//
//   control   engine: hello · node: register · engine: welcome | refused · then both, until goodbye
//   data      engine: hello · node: join     · engine: joined  | refused · then a multiplexer
//   stream    the engine opens it and sends one header; `invoke` streams then carry the messages at the end
import { z } from 'zod'

/** What this program speaks; an engine serves its own version and the two before it. */
export const PROTOCOL_VERSION = 1
export const PROTOCOL_VERSIONS: readonly number[] = [1]

const bytes: z.ZodType<Uint8Array> = z.instanceof(Uint8Array)
const count = z.number().int().nonnegative()
/** Text without NUL, which Postgres cannot store. */
const text = (max: number): z.ZodString =>
  z
    .string()
    .max(max)
    .regex(/^[^\0]*$/, 'it holds a NUL')

export const Manifest = z.object({
  cpuMillis: count,
  memMb: count,
  runtimes: z.array(text(32)).max(8),
  /** Layers of the jail that this machine cannot give its guests (wasm/jail); absent: an agent that cannot say. */
  jailMissing: z.array(text(64)).max(32).optional(),
})
export type Manifest = z.infer<typeof Manifest>

// The opening.

export const Hello = z.object({
  t: z.literal('hello'),
  versions: z.array(count).max(16),
  /** An encoded engine statement, signed by the fleet root (statement.ts). */
  statement: bytes,
})

export const Register = z.object({
  t: z.literal('register'),
  version: count,
  agentVersion: text(64),
  nodeId: text(63),
  /** Sent until the node holds a certificate: proves the first REGISTER. */
  token: text(200).optional(),
  /** The org that the node learned at its first welcome: its folder serves no other. */
  orgId: text(64).optional(),
  /** DER of the certificate that the node holds: one of an earlier identity generation is refused, an expired one not. */
  certificate: bytes.optional(),
  /** 0 until the first welcome. */
  identityGeneration: count,
  manifest: Manifest,
  community: z.boolean(),
  jailer: z.boolean(),
  /** The newest epoch and generation the node has seen: an engine restored from an old database jumps past them. */
  epochSeen: count,
  generationSeen: count,
})

export const Welcome = z.object({
  t: z.literal('welcome'),
  epoch: count,
  engineId: text(64),
  heartbeatMs: count,
  /** DER of the node's certificate, for the key that the pipe authenticated. */
  certificate: bytes,
  /** The fleet root's public key in full; the token pinned its fingerprint only. */
  fleetRoot: bytes,
  identityGeneration: count,
  node: z.object({ id: text(64), orgId: text(64), trustTier: z.enum(['secure', 'community']) }),
  desired: z.object({ generation: count }),
})

/** `retry: false`: retrying cannot help until an operator acts; the agent exits 78 with the message. */
export const Refused = z.object({
  t: z.literal('refused'),
  reason: text(64),
  message: text(1024),
  retry: z.boolean(),
})

export const Join = z.object({ t: z.literal('join'), version: count, ticket: bytes, epoch: count })
export const Joined = z.object({ t: z.literal('joined') })

/** The first message of whoever dialled, and the answer to it. */
export const Opening = z.discriminatedUnion('t', [Register, Join])
export type Opening = z.infer<typeof Opening>
export const OpeningAnswer = z.discriminatedUnion('t', [Welcome, Joined, Refused])
export type OpeningAnswer = z.infer<typeof OpeningAnswer>
export type Register = z.infer<typeof Register>
export type Join = z.infer<typeof Join>
export type Welcome = z.infer<typeof Welcome>
export type Refused = z.infer<typeof Refused>

// Control, node → engine.

export const Heartbeat = z.object({ t: z.literal('heartbeat'), seq: count })
export const Observed = z.object({ t: z.literal('observed'), generation: count })
export const CommandResult = z.object({
  t: z.literal('command-result'),
  id: text(64),
  ok: z.boolean(),
  output: text(64 * 1024),
})
/** The node stops on purpose: nothing is wrong, and the engine need not wait for silence. */
export const Leaving = z.object({ t: z.literal('leaving') })

export const FromNode = z.discriminatedUnion('t', [Heartbeat, Observed, CommandResult, Leaving])
export type FromNode = z.infer<typeof FromNode>

// Control, engine → node.

export const HeartbeatAck = z.object({
  t: z.literal('heartbeat-ack'),
  seq: count,
  /** The beat from now on: it grows with the fleet (D18). */
  heartbeatMs: count,
})
export const Desired = z.object({ t: z.literal('desired'), generation: count })
export const Command = z.object({
  t: z.literal('command'),
  id: text(64),
  kind: z.enum(['diag.wasm']),
  deadlineMs: count,
})
export const Cancel = z.object({ t: z.literal('cancel'), id: text(64) })
export const Renew = z.object({ t: z.literal('renew'), certificate: bytes })
/** Please dial a data pipe and join with this ticket: it works once, for ten seconds. */
export const Open = z.object({ t: z.literal('open'), ticket: bytes })
/** The engine ends the session. The node redials after a uniform wait of up to `spreadMs`. */
export const Goodbye = z.object({
  t: z.literal('goodbye'),
  reason: text(64),
  message: text(1024),
  spreadMs: count,
  retry: z.boolean(),
})

export const FromEngine = z.discriminatedUnion('t', [
  HeartbeatAck,
  Desired,
  Command,
  Cancel,
  Renew,
  Open,
  Goodbye,
])
export type FromEngine = z.infer<typeof FromEngine>

// Data streams: one header, then the stream's own messages.

export const InvokeHeader = z.object({
  t: z.literal('invoke'),
  id: text(64),
  /** A child process serves one function: two functions with the same bytes, of two orgs even, never share one. */
  functionId: text(64),
  artifact: z.object({ sha256: text(64), bytes: count }),
  memMb: count,
  cpuMillis: count,
  timeoutMs: count,
  /** Units of fuel that it may burn; absent: as many as its time allows. */
  fuelMax: count.optional(),
  /** `whole`: stdout is not cut but held back while nobody reads it (FN-9). Absent: `cut`. */
  stdout: z.enum(['cut', 'whole']).optional(),
  /** All of stdin, when it is small: neither `stdin` nor `stdin-end` follows, and the guest may begin at once. */
  stdin: bytes.optional(),
  args: z.array(z.string()),
  env: z.array(z.tuple([z.string(), z.string()])),
})
export type InvokeHeader = z.infer<typeof InvokeHeader>

export const StreamHeader = z.discriminatedUnion('t', [InvokeHeader])
export type StreamHeader = z.infer<typeof StreamHeader>

/** Invoke, engine → node, after the header: artifact chunks if the node said `need`, then stdin, then its end. */
export const ToInvocation = z.discriminatedUnion('t', [
  z.object({ t: z.literal('artifact'), bytes }),
  z.object({ t: z.literal('stdin'), bytes }),
  z.object({ t: z.literal('stdin-end') }),
])
export type ToInvocation = z.infer<typeof ToInvocation>

/** How an invocation ended. `fault` is the node's own failure and never the workload's. */
export const Outcome = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('exited'), exitCode: count }),
  z.object({ kind: z.literal('trap'), message: text(16 * 1024) }),
  z.object({ kind: z.literal('memory'), message: text(1024) }),
  z.object({ kind: z.literal('timeout'), message: text(1024) }),
  z.object({ kind: z.literal('fuel'), message: text(1024) }),
  z.object({ kind: z.literal('cancelled') }),
  z.object({ kind: z.literal('fault'), message: text(1024) }),
])
export type Outcome = z.infer<typeof Outcome>

/** Invoke, node → engine: `artifact` first, then output as it is written, then one `result`. */
export const FromInvocation = z.discriminatedUnion('t', [
  z.object({ t: z.literal('artifact'), have: z.boolean() }),
  z.object({ t: z.literal('stdout'), bytes }),
  z.object({ t: z.literal('stderr'), bytes }),
  z.object({
    t: z.literal('result'),
    outcome: Outcome,
    durationMs: z.number().nonnegative(),
    /** Null when the runner could not say. */
    memPeakMb: z.number().nonnegative().nullable(),
    /** Null when the runner could not say. */
    fuelUsed: count.nullable().optional(),
    stdoutTruncated: z.boolean(),
    stderrTruncated: z.boolean(),
  }),
])
export type FromInvocation = z.infer<typeof FromInvocation>
