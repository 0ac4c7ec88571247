import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import type { signInByDevice } from '#cli/commands/auth/device-flow.ts'
import { docs, json, type CommonFlags } from '#cli/flags.ts'
import { readSession, sessionPath, writeSession } from '#cli/session-file.ts'
import { normalizeUrl, type Target } from '#cli/target.ts'
import { AppError } from '#lib/error.ts'

type Flags = Pick<CommonFlags, 'json'>

export const login = buildCommand<Flags, [url?: string], Cli>({
  docs: docs({
    brief: 'Sign in through the browser (device flow)',
    more: 'The session is kept in ~/.ccp/session.json (0600), one a server; the last one is current.\nFor automation use CCP_API_KEY instead.',
    examples: ['ccp auth login', 'ccp auth login https://clutch.example.com'],
  }),
  parameters: {
    flags: { json },
    positional: {
      kind: 'tuple',
      parameters: [
        {
          parse: String,
          placeholder: 'url',
          brief: 'The engine’s address (default: the current one)',
          optional: true,
        },
      ],
    },
  },
  async func({ json: asJson }, address) {
    const target = await this.target()
    const url = address === undefined ? target.url : normalizeUrl(address)
    const flow = await import('#cli/commands/auth/device-flow.ts')
    const token = await signInAt(this, url, flow.signInByDevice)
    const who = await remember(this, { ...target, url }, token)
    if (asJson) return this.out.json({ url, ...who })
    this.out.line(`Signed in at ${url} as ${this.out.style('bold', who.name)}`)
    if (who.orgs.length > 1)
      this.out.note(`  → Choose an organization: ccp auth use ${who.orgs.join(' | ')}`)
  },
})

type SignIn = typeof signInByDevice

async function signInAt(cli: Cli, url: string, signIn: SignIn): Promise<string> {
  const { clock, signal, out } = cli
  let waiting: Awaited<ReturnType<Cli['ask']['progress']>> | undefined
  try {
    return await signIn({ url, clock, signal }, ({ userCode, address }) => {
      out.note(`Open ${address}\nand approve the code ${out.style('bold', userCode)}`)
      void cli.ask.progress('Waiting for the approval').then((progress) => (waiting = progress))
    })
  } catch (error) {
    signal.throwIfAborted()
    if (error instanceof AppError) throw error
    const { refusalOf } = await import('#cli/call.ts')
    throw refusalOf(error, { ...(await cli.target()), url })
  } finally {
    waiting?.done()
  }
}

async function remember(
  cli: Cli,
  target: Target,
  token: string,
): Promise<{ name: string; orgs: string[] }> {
  const { createApi } = await import('#cli/call.ts')
  const { version, clock, random, signal } = cli
  const credential = {
    kind: 'session',
    secret: token,
    from: sessionPath(cli.settings.home),
  } as const
  const api = createApi({ target: { ...target, credential }, version, clock, random, signal })
  const who = await api.access.whoami({})
  const file = await readSession(cli.settings.home)
  file.current = target.url
  file.contexts[target.url] = {
    token,
    name: who.name,
    orgId: null,
    savedAt: new Date(clock.now()).toISOString(),
  }
  await writeSession(cli.settings.home, file)
  return { name: who.name, orgs: who.orgs.map((org) => org.slug) }
}
