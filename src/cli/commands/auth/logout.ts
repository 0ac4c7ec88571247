import { buildCommand } from '@stricli/core'
import type { Cli } from '#cli/cli.ts'
import { docs, json, type CommonFlags } from '#cli/flags.ts'
import { readSession, writeSession } from '#cli/session-file.ts'

type Flags = Pick<CommonFlags, 'json'>

export const logout = buildCommand<Flags, [], Cli>({
  docs: docs({
    brief: 'End the sign-in at the current engine',
    more: 'The session is ended at the engine as well; when the engine cannot be reached, it is forgotten here and expires there.',
    examples: ['ccp auth logout'],
  }),
  parameters: { flags: { json } },
  async func({ json: asJson }) {
    const { url } = await this.target()
    const file = await readSession(this.settings.home)
    const context = file.contexts[url]
    if (context === undefined) {
      if (asJson) return this.out.json({ url, signedOut: false })
      return this.out.line(`not signed in at ${url}`)
    }
    const ended = await endSession(url, context.token, this.signal)
    delete file.contexts[url]
    file.current = Object.keys(file.contexts)[0] ?? null
    await writeSession(this.settings.home, file)
    if (asJson) return this.out.json({ url, signedOut: true, endedAtEngine: ended })
    this.out.line(`Signed out at ${url}`)
    if (!ended) this.out.note('The engine did not confirm it: the session expires there by itself.')
  },
})

async function endSession(url: string, token: string, signal: AbortSignal): Promise<boolean> {
  const { httpFetch } = await import('#cli/http-fetch.ts')
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const request = new Request(`${url}/api/auth/sign-out`, {
    method: 'POST',
    headers,
    body: '{}',
    signal,
  })
  return httpFetch(request).then(
    (response) => response.ok,
    () => false,
  )
}
