// clutch-sim: simulated nodes in one process, by the real protocol. They answer work without doing it.
import { readFile } from 'node:fs/promises'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { z } from 'zod'
import { createApi, type Api } from '#cli/call.ts'
import { systemClock } from '#lib/clock.ts'
import { AppError, messageOf } from '#lib/error.ts'
import { systemRandom } from '#lib/random.ts'
import { startSimNodes, stopSimNodes } from '#sim/node.ts'

const HELP = `clutch-sim: simulated nodes that speak the real protocol and answer work without doing it.

  --server HOST:PORT   where nodes dial
  --nodes N            how many; they are enrolled as sim-1 … sim-N through the API:
    --url URL          the API; CLUTCH_API_KEY_FILE or CLUTCH_API_KEY and CLUTCH_ORG say as whom
  --tokens FILE        instead of --nodes: JSON [{ "nodeId", "token" }], '-' reads it from stdin
`
const ENROLLS_AT_ONCE = 8
const EXIT_CONFIG = 78

const Tokens = z.array(z.object({ nodeId: z.string(), token: z.string() })).min(1)
type Tokens = z.infer<typeof Tokens>

async function main(argv: string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv,
    options: {
      server: { type: 'string' },
      nodes: { type: 'string' },
      url: { type: 'string' },
      tokens: { type: 'string' },
      help: { type: 'boolean' },
    },
  })
  if (values.help === true) {
    process.stdout.write(HELP)
    return 0
  }
  const server = /^(.+):(\d{1,5})$/.exec(values.server ?? '')
  if (!server) throw invalid('--server HOST:PORT is missing: where the engine takes nodes')
  const stopping = new AbortController()
  for (const signal of ['SIGTERM', 'SIGINT'] as const)
    process.on(signal, () => (stopping.signal.aborted ? process.exit(1) : stopping.abort()))
  const specs = values.tokens
    ? await readTokens(values.tokens)
    : await enroll(values.url, Number(values.nodes), stopping.signal)
  const nodes = await startSimNodes(specs, {
    server: { host: server[1] ?? '', port: Number(server[2]) },
    clock: systemClock,
    random: systemRandom,
  })
  process.stdout.write(`${nodes.length} simulated nodes are with ${values.server}\n`)
  const first = Promise.race(
    nodes.map(async (node) => ({ node: node.spec.nodeId, ended: await node.done })),
  )
  const stopped = new Promise<undefined>((resolve) =>
    stopping.signal.addEventListener('abort', () => resolve(undefined), { once: true }),
  )
  const over = await Promise.race([first, stopped])
  await stopSimNodes(nodes)
  if (over?.ended.kind !== 'fatal') return 0
  process.stderr.write(`${over.ended.reason}: ${over.node}: ${over.ended.message}\n`)
  return EXIT_CONFIG
}

async function readTokens(file: string): Promise<Tokens> {
  const text = file === '-' ? await readStdin() : await readFile(file, 'utf8')
  const parsed = Tokens.safeParse(JSON.parse(text))
  if (!parsed.success) throw invalid('--tokens is not JSON [{ "nodeId", "token" }]')
  return parsed.data
}

async function readStdin(): Promise<string> {
  const chunks: Uint8Array[] = []
  for await (const chunk of process.stdin) chunks.push(chunk as Uint8Array)
  return Buffer.concat(chunks).toString('utf8')
}

/** A node of an earlier run has lost its key: it gets a new identity under its name. */
async function enroll(
  url: string | undefined,
  count: number,
  signal: AbortSignal,
): Promise<Tokens> {
  if (!Number.isInteger(count) || count < 1) throw invalid('--nodes N is missing: how many')
  const { api, orgId } = await apiOf(url, signal)
  const known = new Map<string, string>()
  for (let cursor: string | undefined; ;) {
    const page = await api.compute.nodes.list({
      orgId,
      ...(cursor === undefined ? {} : { cursor }),
    })
    for (const node of page.nodes) known.set(node.node_id, node.id)
    if (page.next_cursor === null) break
    cursor = page.next_cursor
  }
  const names = Array.from({ length: count }, (_, at) => `sim-${at + 1}`)
  const specs: Tokens = []
  const worker = async (): Promise<void> => {
    for (let nodeId = names.shift(); nodeId !== undefined; nodeId = names.shift()) {
      const id = known.get(nodeId)
      const { token } = id
        ? await api.compute.nodes.revokeIdentity({ orgId, id })
        : // Community: a simulated node invents its answers, so only work that allows community may reach one.
          await api.compute.nodes.enroll({
            orgId,
            nodeId,
            trustTier: 'community',
            label: 'simulated',
          })
      if (token === null) throw invalid(`enrolling ${nodeId} gave no token`)
      specs.push({ nodeId, token })
    }
  }
  await Promise.all(Array.from({ length: ENROLLS_AT_ONCE }, worker))
  return specs
}

async function apiOf(
  url: string | undefined,
  signal: AbortSignal,
): Promise<{ api: Api; orgId: string }> {
  if (url === undefined) throw invalid('--url is missing: the API that enrolls the nodes')
  const file = process.env['CLUTCH_API_KEY_FILE']
  const secret = file ? (await readFile(file, 'utf8')).trim() : process.env['CLUTCH_API_KEY']
  if (!secret) throw invalid('CLUTCH_API_KEY_FILE or CLUTCH_API_KEY is missing')
  const api = createApi({
    target: {
      url,
      credential: { kind: 'api-key', secret, from: file ?? 'CLUTCH_API_KEY' },
      orgId: undefined,
      sessions: undefined,
    },
    version: 'sim',
    clock: systemClock,
    random: systemRandom,
    signal,
  })
  const orgId = process.env['CLUTCH_ORG'] ?? (await api.access.whoami({})).orgs[0]?.id
  if (!orgId) throw invalid('CLUTCH_ORG is missing')
  return { api, orgId }
}

const invalid = (message: string): AppError =>
  new AppError('INVALID', message, { details: { reason: 'CONFIG', next: 'clutch-sim --help' } })

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  const reason = error instanceof AppError ? (error.details.reason ?? error.code) : 'FAILED'
  process.stderr.write(`${reason}: ${messageOf(error)}\n`)
  process.exitCode = error instanceof AppError && error.code === 'INVALID' ? EXIT_CONFIG : 1
}
