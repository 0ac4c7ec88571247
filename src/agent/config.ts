// What an agent is started with (ND-3): flags over environment, parsed once, every fault in one message.
// 1. A secret is better in a file or the environment: arguments stand in `ps`. `--token` works, because people paste it.
// 2. There is no region here: the operator sets it (D35).
import { parseArgs } from 'node:util'
import { z } from 'zod'
import { AppError } from '#lib/error.ts'
import { NAME_LENGTH_MAX, NAME_PATTERN, NAME_RULE } from '#core/name.ts'
import { RUNTIMES, type Runtime } from '#core/node/node.ts'
import { UID_RANGE, type UidRange } from '#wasm/jail/uids.ts'

export type AgentConfig = {
  server: { host: string; port: number }
  nodeId: string
  /** Undefined: the data folder holds an identity, or the start fails. */
  token: { text: string } | { file: string } | undefined
  runtimes: Runtime[]
  community: boolean
  jailer: boolean
  /** As root: the user ids that guests run as, one each. */
  jailUids: UidRange
  dataDir: string
  maxCpuMillis: number | undefined
  maxMemMb: number | undefined
  /** 'auto' races QUIC and TCP. */
  transport: 'auto' | 'quic' | 'tls'
  logLevel: string
}

/** What this version of the agent can run. */
export const OFFERED: readonly Runtime[] = ['wasm']
const DEFAULT_PORT = 443

const flags = {
  server: { type: 'string' },
  node: { type: 'string' },
  token: { type: 'string' },
  'token-file': { type: 'string' },
  runtimes: { type: 'string' },
  community: { type: 'boolean' },
  jailer: { type: 'boolean' },
  'jail-uids': { type: 'string' },
  'data-dir': { type: 'string' },
  'max-cpu-millis': { type: 'string' },
  'max-mem-mb': { type: 'string' },
  transport: { type: 'string' },
  'log-level': { type: 'string' },
} as const

type Env = Record<string, string | undefined>
type Place = { home: string; uid: number }

/** Errors: INVALID `CONFIG`, with one line a fault. */
export function parseAgentConfig(argv: readonly string[], env: Env, place: Place): AgentConfig {
  const faults: string[] = []
  const given = readFlags(argv, faults)
  const text = (flag: keyof typeof flags, name: string): string | undefined => {
    const value = given[flag] ?? env[name]
    return typeof value === 'string' && value !== '' ? value : undefined
  }
  const config: AgentConfig = {
    server: readServer(text('server', 'CLUTCH_SERVER'), faults),
    nodeId: readNode(text('node', 'CLUTCH_NODE'), faults),
    token: readToken(given, env),
    runtimes: readRuntimes(text('runtimes', 'CLUTCH_RUNTIMES'), given, faults),
    community: given.community === true,
    jailer: given.jailer === true,
    jailUids: readUids(text('jail-uids', 'CLUTCH_JAIL_UIDS'), faults),
    dataDir: text('data-dir', 'CLUTCH_DATA_DIR') ?? defaultDataDir(place),
    maxCpuMillis: readCount(
      text('max-cpu-millis', 'CLUTCH_MAX_CPU_MILLIS'),
      '--max-cpu-millis',
      faults,
    ),
    maxMemMb: readCount(text('max-mem-mb', 'CLUTCH_MAX_MEM_MB'), '--max-mem-mb', faults),
    transport: readChoice(given.transport, '--transport', ['auto', 'quic', 'tls'], faults),
    logLevel: readChoice(
      given['log-level'],
      '--log-level',
      ['info', 'debug', 'warn', 'error'],
      faults,
    ),
  }
  if (faults.length > 0) throw invalid(faults.join('\n'))
  return config
}

export const AGENT_HELP = `clutch-noded: offers this machine to a Clutch platform. It dials out; nothing dials in.

  --server HOST:PORT     the engine; port 443 unless given (CLUTCH_SERVER)
  --node ID              the nodeId this machine was enrolled as (CLUTCH_NODE)
  --token-file FILE      file with the one-time token of enroll; needed until the first welcome (CLUTCH_TOKEN_FILE)
  --token TOKEN          the same on the command line, where others can read it (CLUTCH_TOKEN is safer)
  --runtimes wasm        what this machine runs (CLUTCH_RUNTIMES)
  --community            this is contributed hardware; it offers no microVMs without --jailer
  --jailer               offer microVMs only inside the jail
  --jail-uids 64100-64999
                         as root: user ids that nobody else has, one for each running guest (CLUTCH_JAIL_UIDS)
  --data-dir DIR         keys, journal, cache (CLUTCH_DATA_DIR)
  --max-cpu-millis N     offer at most this much CPU, in thousandths of a core (CLUTCH_MAX_CPU_MILLIS)
  --max-mem-mb N         offer at most this much memory; by default all but a tenth (CLUTCH_MAX_MEM_MB)
  --transport auto       quic: UDP only; tls: TCP only; auto: QUIC, and TCP where UDP does not get through
  --log-level info
`

function readFlags(argv: readonly string[], faults: string[]): ReturnType<typeof parsed> {
  const region = argv.find((argument) => /^--region\b/.test(argument))
  if (region !== undefined)
    throw invalid('--region is no flag: the operator sets the region of a node when it is enrolled')
  try {
    return parsed(argv)
  } catch (error) {
    faults.push(error instanceof Error ? (error.message.split('. ')[0] ?? '') : String(error))
    return {}
  }
}

type Given = { -readonly [F in keyof typeof flags]?: string | boolean | undefined }
const parsed = (argv: readonly string[]): Given =>
  parseArgs({ args: [...argv], options: flags, strict: true, allowPositionals: false }).values

function readServer(text: string | undefined, faults: string[]): { host: string; port: number } {
  if (text === undefined) {
    faults.push(
      '--server is missing: host and port of the engine, e.g. --server clutch.example.com:443',
    )
    return { host: '', port: 0 }
  }
  const found = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:/[\]]+))(?::(\d{1,5}))?$/.exec(text)
  const host = found?.[1] ?? found?.[2]
  const port = Number(found?.[3] ?? DEFAULT_PORT)
  if (host === undefined || port < 1 || port > 65_535)
    faults.push(
      `--server '${text}' is not HOST:PORT, e.g. clutch.example.com:443 or [2001:db8::7]:443`,
    )
  return { host: host ?? '', port }
}

function readNode(text: string | undefined, faults: string[]): string {
  if (text === undefined)
    faults.push(
      '--node is missing: the nodeId that this machine was enrolled as, e.g. --node node-a1',
    )
  else if (!NAME_PATTERN.test(text) || text.length > NAME_LENGTH_MAX)
    faults.push(`--node '${text}' is no nodeId: ${NAME_RULE}`)
  return text ?? ''
}

function readToken(given: Given, env: Env): AgentConfig['token'] {
  const text = given.token ?? env['CLUTCH_TOKEN']
  if (typeof text === 'string' && text !== '') return { text: text.trim() }
  const file = given['token-file'] ?? env['CLUTCH_TOKEN_FILE']
  return typeof file === 'string' && file !== '' ? { file } : undefined
}

function readRuntimes(text: string | undefined, given: Given, faults: string[]): Runtime[] {
  if (text === undefined) {
    faults.push(
      `--runtimes is missing: what this machine runs, e.g. --runtimes ${OFFERED.join(',')}`,
    )
    return []
  }
  const names = [...new Set(text.split(',').map((name) => name.trim()))]
  const runtimes = RUNTIMES.filter((runtime) => names.includes(runtime))
  for (const name of names)
    if (!RUNTIMES.some((runtime) => runtime === name))
      faults.push(`--runtimes '${name}' is no runtime: there are ${RUNTIMES.join(', ')}`)
  if (runtimes.includes('microvm') && given.community === true && given.jailer !== true)
    faults.push(
      '--community refuses to offer microvm: on contributed hardware machines run inside the jailer only; add --jailer, or leave microvm out of --runtimes',
    )
  else
    for (const runtime of runtimes)
      if (!OFFERED.includes(runtime))
        faults.push(
          `--runtimes ${runtime}: this version of the agent offers ${OFFERED.join(', ')} only`,
        )
  return runtimes
}

/** Ids below are the system's and people's. */
const JAIL_UID_MIN = 1_000
/** The kernel's last; the one after it means nobody. */
const JAIL_UID_MAX = 4_294_967_294

function readUids(text: string | undefined, faults: string[]): UidRange {
  if (text === undefined) return UID_RANGE
  const [, from, to] = /^(\d{1,10})-(\d{1,10})$/.exec(text) ?? []
  const range = { first: Number(from), last: Number(to) }
  // NaN compares false.
  if (!(range.first >= JAIL_UID_MIN && range.last >= range.first && range.last <= JAIL_UID_MAX))
    faults.push(
      `--jail-uids '${text}' is no range of user ids from ${JAIL_UID_MIN} up, e.g. ${UID_RANGE.first}-${UID_RANGE.last}`,
    )
  return range
}

const Count = z.coerce.number().int().positive()

function readCount(text: string | undefined, flag: string, faults: string[]): number | undefined {
  if (text === undefined) return undefined
  const count = Count.safeParse(text)
  if (!count.success) faults.push(`${flag} '${text}' is not a whole number above 0`)
  return count.data
}

function readChoice<const T extends string>(
  value: string | boolean | undefined,
  flag: string,
  choices: readonly [T, ...T[]],
  faults: string[],
): T {
  if (value === undefined) return choices[0]
  const found = choices.find((choice) => choice === value)
  if (found === undefined)
    faults.push(`${flag} '${String(value)}' is not one of ${choices.join(', ')}`)
  return found ?? choices[0]
}

const defaultDataDir = ({ home, uid }: Place): string =>
  uid === 0 ? '/var/lib/clutch-noded' : `${home}/.local/state/clutch-noded`

const invalid = (message: string): AppError =>
  new AppError('INVALID', message, { details: { reason: 'CONFIG', next: 'clutch-noded --help' } })
