// Secrets of the API, looked for everywhere they must not be: rows, logs, events, lists, errors, metrics (000-18, §9).
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sql } from 'kysely'
import { createLogger } from '#lib/log.ts'
import type { Store } from '#store/connect.ts'
import { makeWorld, type World } from '#test/world.ts'

const orgId = 'platform'

type Secret = { what: string; text: string }

/** Every row of every table as text, by table. */
async function allRows(db: Store): Promise<Map<string, string>> {
  const { rows: tables } = await sql<{ name: string }>`
    select table_name as name from information_schema.tables
    where table_schema = 'public' and table_type = 'BASE TABLE'
  `.execute(db)
  assert.ok(tables.length > 20)
  const found = new Map<string, string>()
  for (const { name } of tables) {
    const { rows } = await sql<{ text: string | null }>`
      select string_agg(t::text, E'\n') as text from ${sql.table(name)} t
    `.execute(db)
    found.set(name, rows[0]?.text ?? '')
  }
  return found
}

/** The secret itself, what stands after its prefix, and both as bytes in hex and base64. */
function forms({ text }: Secret): string[] {
  const bare = text.replace(/^clt_[a-z]_/, '')
  return [text, bare].flatMap((one) => [
    one,
    Buffer.from(one).toString('hex'),
    Buffer.from(one).toString('base64').replace(/=+$/, ''),
  ])
}

/** Makes one secret of each kind and uses it. */
async function makeSecrets(world: World): Promise<Secret[]> {
  const secrets: Secret[] = []
  const keep = (what: string, text: string | null | undefined): string => {
    assert.ok(text && text.length >= 8, what)
    secrets.push({ what, text })
    return text
  }
  const link = keep('owner link', (await world.engine.auth.ownerLink())?.split('#')[1])
  const password = keep('password', 'canary horse battery staple')
  const email = 'owner@example.test'
  const joined = await world.fetch('/setup', {
    body: { token: link, name: 'Olive', email, password },
  })
  assert.equal(joined.status, 200)
  const { token } = (await joined.json()) as { token: string }
  const bearer = { authorization: `Bearer ${keep('session token', token)}` }
  const call = async (
    path: string,
    body: object,
    headers = {},
  ): Promise<Record<string, string>> => {
    const response = await world.fetch(path, { body, headers: { ...bearer, ...headers } })
    assert.equal(response.status, 200, await response.clone().text())
    return (await response.json()) as Record<string, string>
  }
  const key = await call(
    '/v1/keys',
    { orgId, name: 'ci', role: 'owner' },
    { 'idempotency-key': 'k' },
  )
  keep('API key', key['secret'])
  const invited = await call(
    '/v1/invitations',
    { orgId, email: 'guest@example.test' },
    { 'idempotency-key': 'i' },
  )
  keep('invitation', invited['link']?.split('#')[1])
  const node = { orgId, nodeId: 'a1', trustTier: 'secure' }
  const enrolled = await call('/v1/nodes', node, { 'idempotency-key': 'n' })
  keep('enroll token', enrolled['token'])
  const again = await call('/v1/nodes/a1/revoke-identity', { orgId }, { 'idempotency-key': 'r' })
  keep('token of the next identity', again['token'])
  const device = await call('/api/auth/device/code', { client_id: 'ccp' })
  keep('device code', device['device_code'])
  for (const { text } of secrets)
    await world.fetch('/v1/whoami', {
      headers: { 'x-api-key': text, authorization: `Bearer ${text}` },
    })
  return secrets
}

/** Answers that anybody may get: every list, replays, and errors of calls that misuse a secret. */
async function makeAnswers(world: World, secrets: readonly Secret[]): Promise<Map<string, string>> {
  const apiKey = secrets.find((one) => one.what === 'API key')!.text
  const headers = { 'x-api-key': apiKey }
  const answers = new Map<string, string>()
  const ask = async (path: string, init: Parameters<World['fetch']>[1] = {}): Promise<void> => {
    const response = await world.fetch(path, { ...init, headers: { ...headers, ...init.headers } })
    const at = `${init.method ?? (init.body ? 'POST' : 'GET')} ${path} ${answers.size}`
    answers.set(at, (await response.text()) + JSON.stringify([...response.headers]))
  }
  for (const path of ['/v1/nodes', '/v1/nodes/a1', '/v1/keys', '/v1/events', '/v1/functions'])
    await ask(`${path}?orgId=${orgId}`)
  for (const path of ['/v1/whoami', '/metrics', '/ready', '/openapi.json']) await ask(path)
  const replay = { orgId, nodeId: 'a1', trustTier: 'secure' }
  await ask('/v1/nodes', { body: replay, headers: { 'idempotency-key': 'n' } })
  await ask('/v1/keys', {
    body: { orgId, name: 'ci', role: 'owner' },
    headers: { 'idempotency-key': 'k' },
  })
  await ask('/v1/invitations', {
    body: { orgId, email: 'guest@example.test' },
    headers: { 'idempotency-key': 'i' },
  })
  await ask('/v1/nodes/a1/revoke-identity', {
    body: { orgId },
    headers: { 'idempotency-key': 'r' },
  })
  for (const { text } of secrets) {
    // In the wrong place, where a careless message would quote it.
    await ask('/v1/nodes', { body: { orgId, nodeId: text, trustTier: text, region: text } })
    await ask('/setup', { body: { token: text, name: 'x', email: text, password: text } })
    await ask('/api/auth/sign-in/email', { body: { email: 'owner@example.test', password: text } })
    await ask('/v1/nodes', { body: `{"nodeId": ${text}` })
  }
  return answers
}

test('000-18 no secret of the API stands in any row, log line, event, list, replay or error', async (t) => {
  const lines: string[] = []
  const log = createLogger('test', 'trace', { write: (line: string) => void lines.push(line) })
  const config = { signInsPerMinute: 1_000 }
  const world = await makeWorld(t, { log, config })
  const secrets = await makeSecrets(world)
  assert.equal(secrets.length, 8)
  const answers = await makeAnswers(world, secrets)
  const places = new Map([
    ...[...(await allRows(world.engine.db))].map(
      ([name, text]) => [`table ${name}`, text] as const,
    ),
    ...answers,
    ['the log', lines.join('')] as const,
  ])
  assert.ok((places.get('the log') ?? '').length > 1_000, 'the log was read')
  assert.ok((places.get('table node_credentials') ?? '').length > 100, 'rows were read')
  const leaks = secrets.flatMap((secret) =>
    forms(secret).flatMap((form) =>
      [...places].flatMap(([place, text]) =>
        text.includes(form) ? [`${secret.what} in ${place}`] : [],
      ),
    ),
  )
  assert.deepEqual(leaks, [])
})

test('000-18 the search above finds what is planted', async (t) => {
  const world = await makeWorld(t)
  const { db } = world.engine
  const at = new Date()
  await db
    .insertInto('sites')
    .values({ id: 'site_1', orgId: 'o', name: 'clt_n_planted', createdAt: at })
    .execute()
  await db
    .insertInto('setupLinks')
    .values({ tokenHash: Buffer.from('planted too'), expiresAt: at })
    .execute()
  const rows = [...(await allRows(db)).values()].join('\n')
  for (const text of ['clt_n_planted', 'planted too'])
    assert.ok(
      forms({ what: 'planted', text }).some((form) => rows.includes(form)),
      text,
    )
})
