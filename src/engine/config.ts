// What an operator can set: one schema says the name in the environment, the flag, the default and the help of each.
// 1. Parsed once, in bin. An unknown flag or CLUTCH_ name is an error that names the nearest, never ignored.
// 2. A secret has no flag: arguments stand in `ps`. It comes from the environment or from a file.
import { z } from 'zod'
import { AppError } from '#lib/error.ts'

const port = z.coerce.number().int().min(0).max(65_535)
const perMinute = z.coerce.number().int().min(1)
const flagged = z.stringbool()
const listed = z
  .string()
  .transform((text) => text.split(',').map((part) => part.trim()))
  .pipe(z.array(z.string().min(1)))

export const engineSettings = z.object({
  home: z.string().min(1).optional().meta({
    env: 'CLUTCH_HOME',
    flag: 'home',
    help: 'Folder for what must survive the engine: database, keys, blobs',
  }),
  databaseUrl: z.string().min(1).optional().meta({
    env: 'DATABASE_URL',
    help: 'Postgres to use; without it the engine runs its own in the state folder',
  }),
  databaseUrlFile: z.string().min(1).optional().meta({
    env: 'DATABASE_URL_FILE',
    flag: 'database-url-file',
    help: 'File that holds the URL of the Postgres to use',
  }),
  httpHost: z.string().min(1).default('127.0.0.1').meta({
    env: 'CLUTCH_HTTP_HOST',
    flag: 'http-host',
    help: 'Address that the API and the pages listen on',
  }),
  httpPort: port.default(7070).meta({
    env: 'CLUTCH_HTTP_PORT',
    flag: 'http-port',
    help: 'Port of the API and the pages; 0 takes a free one',
  }),
  publicUrl: z
    .url({ protocol: /^https?$/ })
    .optional()
    .meta({
      env: 'CLUTCH_PUBLIC_URL',
      flag: 'public-url',
      help: 'Where people reach the API, e.g. https://clutch.example.com; by default the address listened on',
    }),
  sessionHost: z.string().min(1).default('127.0.0.1').meta({
    env: 'CLUTCH_SESSION_HOST',
    flag: 'session-host',
    help: 'Address that nodes dial, UDP and TCP',
  }),
  sessionPort: port.default(7443).meta({
    env: 'CLUTCH_SESSION_PORT',
    flag: 'session-port',
    help: 'Port that nodes dial, UDP and TCP; 0 takes a free one',
  }),
  keyring: z.string().min(1).optional().meta({
    env: 'CLUTCH_KEYRING',
    flag: 'keyring',
    help: 'Folder of the fleet keys; engines of one fleet share it. By default secrets/ in the state folder',
  }),
  blobs: z.string().min(1).optional().meta({
    env: 'CLUTCH_BLOBS',
    flag: 'blobs',
    help: 'Folder of stored bytes; engines of one fleet share it. By default blobs/ in the state folder',
  }),
  logLevel: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'])
    .default('info')
    .meta({ env: 'CLUTCH_LOG_LEVEL', flag: 'log-level', help: 'Least level that is logged' }),
  trustedProxies: listed.default([]).meta({
    env: 'CLUTCH_TRUSTED_PROXIES',
    flag: 'trusted-proxies',
    help: 'Addresses whose x-forwarded-for is believed, separated by commas',
  }),
  signUp: z.enum(['closed', 'open']).default('closed').meta({
    env: 'CLUTCH_SIGN_UP',
    flag: 'sign-up',
    help: 'closed: by the owner link or an invitation only; open: anybody may make an account and an organization',
  }),
  signInsPerMinute: perMinute.default(10).meta({
    env: 'CLUTCH_SIGN_INS_PER_MINUTE',
    flag: 'sign-ins-per-minute',
    help: 'Sign-ins and sign-ups of one address',
  }),
  enrollsPerMinute: perMinute.default(60).meta({
    env: 'CLUTCH_ENROLLS_PER_MINUTE',
    flag: 'enrolls-per-minute',
    help: 'Enrollments of one organization',
  }),
  deploysPerMinute: perMinute.default(60).meta({
    env: 'CLUTCH_DEPLOYS_PER_MINUTE',
    flag: 'deploys-per-minute',
    help: 'Deployments of one organization',
  }),
  invokesPerMinute: perMinute.default(60_000).meta({
    env: 'CLUTCH_INVOKES_PER_MINUTE',
    flag: 'invokes-per-minute',
    help: 'Invocations of one organization',
  }),
  publicInvokesPerMinute: perMinute.default(600).meta({
    env: 'CLUTCH_PUBLIC_INVOKES_PER_MINUTE',
    flag: 'public-invokes-per-minute',
    help: 'Invocations of public functions that one address makes as a stranger',
  }),
  unregisteredPerAddress: z.coerce.number().int().min(1).default(64).meta({
    env: 'CLUTCH_UNREGISTERED_PER_ADDRESS',
    flag: 'unregistered-per-address',
    help: 'Connections of one address that have not registered a node yet',
  }),
  shutdownMs: z.coerce.number().int().min(0).default(10_000).meta({
    env: 'CLUTCH_SHUTDOWN_MS',
    flag: 'shutdown-ms',
    help: 'How long work in flight may take to end when the engine stops',
  }),
  dev: flagged.default(false).meta({
    env: 'CLUTCH_DEV',
    flag: 'dev',
    help: 'Writes an API key of the platform organization to secrets/dev-key, for ccp dev',
  }),
})

export type EngineConfig = z.infer<typeof engineSettings>
type Name = keyof EngineConfig

/** One setting as the reference and the help show it. */
export type Setting = { name: Name; env: string; flag: string | undefined; help: string }

const Described = z.object({ env: z.string(), flag: z.string().optional(), help: z.string() })

export const settings: readonly Setting[] = Object.entries(engineSettings.shape).map(
  ([name, schema]) => {
    const { env, flag, help } = Described.parse(schema.meta())
    return { name: name as Name, env, flag, help }
  },
)

/** CLUTCH_ names of other programs, which an engine may find in its environment. */
const ELSEWHERE =
  /^CLUTCH_(TEST_.*|SOAK|TOKEN|TOKEN_FILE|URL|ORG|API_KEY|API_KEY_FILE|SERVER|NODE|RUNTIMES|DATA_DIR|MAX_CPU_MILLIS|MAX_MEM_MB|NODED_.*|BENCH_.*)$/

/**
 * The settings of `argv` (without the program's name) over those of `env`. Throws INVALID with every fault in one
 * message. `--dev` may stand without a value; every other flag takes one, as `--flag value` or `--flag=value`.
 */
export function parseConfig(env: Record<string, string | undefined>, argv: string[]): EngineConfig {
  const faults: string[] = []
  const given: Partial<Record<Name, string>> = {}
  const sources: Partial<Record<Name, string>> = {}
  readEnv(env, { given, sources, faults })
  readFlags(argv, { given, sources, faults })
  const parsed = engineSettings.safeParse(given)
  for (const issue of parsed.error?.issues ?? []) {
    const name = String(issue.path[0]) as Name
    faults.push(`${sources[name] ?? name}: ${issue.message}, got '${given[name] ?? ''}'`)
  }
  if (parsed.success && faults.length === 0) return parsed.data
  throw new AppError('INVALID', `The configuration is wrong. ${faults.join('. ')}`, {
    details: { reason: 'CONFIG', next: 'See clutch-engine --help' },
  })
}

type Reading = {
  given: Partial<Record<Name, string>>
  sources: Partial<Record<Name, string>>
  faults: string[]
}

function readEnv(env: Record<string, string | undefined>, into: Reading): void {
  for (const [key, value] of Object.entries(env)) {
    if (value === undefined || value === '') continue
    const setting = settings.find((one) => one.env === key)
    if (setting) {
      into.given[setting.name] = value
      into.sources[setting.name] = key
    } else if (key.startsWith('CLUTCH_') && !ELSEWHERE.test(key)) {
      into.faults.push(
        `${key} is no setting: did you mean ${nearest(
          key,
          settings.map((one) => one.env),
        )}?`,
      )
    }
  }
}

function readFlags(argv: string[], into: Reading): void {
  const flags = settings.flatMap((one) => (one.flag === undefined ? [] : [`--${one.flag}`]))
  for (let at = 0; at < argv.length; at++) {
    const [flag, inline] = split(argv[at] ?? '')
    const setting = settings.find((one) => `--${one.flag}` === flag)
    if (!setting) {
      into.faults.push(`${flag} is no flag: did you mean ${nearest(flag, flags)}?`)
      if (argv[at + 1]?.startsWith('--') === false) at++
      continue
    }
    const next = argv[at + 1]
    const bare = next === undefined || next.startsWith('--')
    const value = inline ?? (bare ? (setting.name === 'dev' ? 'true' : undefined) : next)
    if (inline === undefined && !bare) at++
    if (value === undefined) into.faults.push(`${flag} needs a value`)
    else {
      into.given[setting.name] = value
      into.sources[setting.name] = flag
    }
  }
}

function split(argument: string): [string, string | undefined] {
  const at = argument.indexOf('=')
  return at < 0 ? [argument, undefined] : [argument.slice(0, at), argument.slice(at + 1)]
}

/** The candidate that takes the fewest single-character edits. */
export function nearest(word: string, candidates: readonly string[]): string {
  const ranked = candidates.map((candidate) => ({ candidate, edits: edits(word, candidate) }))
  return ranked.toSorted((a, b) => a.edits - b.edits)[0]?.candidate ?? ''
}

function edits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}

/** The text of `clutch-engine --help`. */
export function configHelp(): string {
  const width = Math.max(...settings.map((one) => `--${one.flag ?? ''}`.length))
  const lines = settings.map((one) => {
    const flag = one.flag === undefined ? '' : `--${one.flag}`
    return `  ${flag.padEnd(width)}  ${one.help} (${one.env})`
  })
  return ['clutch-engine: the API and the gateway of a Clutch platform', '', ...lines, ''].join(
    '\n',
  )
}
