import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { argument, docs, json, type CommonFlags } from '#cli/flags.ts'
import { readSession, writeSession } from '#cli/session-file.ts'
import { normalizeUrl } from '#cli/target.ts'
import { AppError } from '#lib/error.ts'

type Flags = Pick<CommonFlags, 'json'>

export const use = buildCommand<Flags, [choice: string], Cli>({
  docs: docs({
    brief: 'Choose the server or the organization that commands are for',
    examples: ['ccp auth use https://clutch.example.com', 'ccp auth use acme'],
  }),
  parameters: {
    flags: { json },
    positional: {
      kind: 'tuple',
      parameters: [
        argument('server|org', 'A server of `ccp auth contexts`, or an org’s slug or id'),
      ],
    },
  },
  async func({ json: asJson }, choice) {
    const chosen = choice.includes('://')
      ? await useServer(this, choice)
      : await useOrg(this, choice)
    if (asJson) return this.out.json(chosen)
    this.out.line(
      `Commands go to ${chosen.url}${chosen.orgId === null ? '' : `, for the organization ${choice}`}`,
    )
  },
})

type Chosen = { url: string; orgId: string | null }

async function useServer(cli: Cli, choice: string): Promise<Chosen> {
  const url = normalizeUrl(choice)
  const file = await readSession(cli.settings.home)
  const context = file.contexts[url]
  if (context === undefined) throw notSignedIn(url)
  await writeSession(cli.settings.home, { ...file, current: url })
  return { url, orgId: context.orgId }
}

async function useOrg(cli: Cli, choice: string): Promise<Chosen> {
  const { url } = await cli.target()
  const file = await readSession(cli.settings.home)
  const context = file.contexts[url]
  if (context === undefined) throw notSignedIn(url)
  const { orgs } = await (await cli.api()).access.whoami({})
  const org = orgs.find((one) => one.id === choice || one.slug === choice)
  if (org === undefined)
    throw new AppError('NOT_FOUND', `you are a member of no organization '${choice}' at ${url}`, {
      details: { next: `Yours: ${orgs.map((one) => one.slug).join(', ') || 'none'}` },
    })
  file.contexts[url] = { ...context, orgId: org.id }
  await writeSession(cli.settings.home, file)
  return { url, orgId: org.id }
}

const notSignedIn = (url: string): AppError =>
  new AppError('UNAUTHENTICATED', `there is no sign-in at ${url}`, {
    details: { next: `Sign in first: ccp auth login ${url}` },
  })
