// The identity system over real HTTP: how people come, sign in, and end.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { sql } from 'kysely'
import { sha256Hex } from '#lib/bytes.ts'
import { signInByDevice } from '#cli/commands/auth/device-flow.ts'
import { systemClock, type Clock } from '#lib/clock.ts'
import { fakeClock } from '#lib/fake-clock.ts'
import { PLATFORM_SLUG } from '#store/members.ts'
import { cookieOf, makeWorld, type World } from '#test/world.ts'

const PERSON = { name: 'Olive', email: 'olive@example.test', password: 'correct horse battery' }

const tokenOf = (link: string | null | undefined): string => link?.split('#')[1] ?? ''

async function json(response: Response): Promise<Record<string, unknown>> {
  return (await response.json()) as Record<string, unknown>
}

async function signIn(
  world: World,
  person: { email: string; password: string },
  headers: Record<string, string> = {},
): Promise<Response> {
  const { email, password } = person
  return world.fetch('/api/auth/sign-in/email', { body: { email, password }, headers })
}

test('AC-1 D50 the owner link makes the first owner, once', async (t) => {
  const world = await makeWorld(t)
  const link = await world.engine.auth.ownerLink()
  assert.ok(link?.startsWith(`${world.url}/setup#`))
  const joined = await world.fetch('/setup', { body: { token: tokenOf(link), ...PERSON } })
  assert.equal(joined.status, 200)
  const cookie = cookieOf(joined)
  const me = await json(await world.fetch('/v1/whoami', { headers: { cookie } }))
  assert.equal(me['kind'], 'user')
  assert.equal(me['platform_operator'], true)
  assert.deepEqual(me['orgs'], [
    { id: world.platformOrgId, slug: PLATFORM_SLUG, name: 'Platform', role: 'owner' },
  ])
  const again = await world.fetch('/setup', {
    body: { token: tokenOf(link), ...PERSON, email: 'second@example.test' },
  })
  assert.equal(again.status, 403)
  assert.match(String((await json(again))['message']), /was used/)
  assert.equal(await world.engine.auth.ownerLink(), undefined)
})

test('AC-1 a sign-up that fails leaves the owner link good', async (t) => {
  const world = await makeWorld(t)
  const token = tokenOf(await world.engine.auth.ownerLink())
  const short = await world.fetch('/setup', { body: { token, ...PERSON, password: 'short' } })
  assert.equal(short.status, 400)
  assert.match(String((await json(short))['message']), /password must have at least 10 characters/)
  const nothing = await json(await world.fetch('/setup', { body: {} }))
  assert.match(String(nothing['message']), /token is required.*name is required.*email.*password/)
  assert.equal((await world.fetch('/setup', { body: { token, ...PERSON } })).status, 200)
})

test('AC-1 of two sign-ups that race with one owner link, one wins', async (t) => {
  const world = await makeWorld(t)
  const token = tokenOf(await world.engine.auth.ownerLink())
  const answers = await Promise.all(
    [1, 2, 3].map((n) =>
      world.fetch('/setup', { body: { token, ...PERSON, email: `racer${n}@example.test` } }),
    ),
  )
  assert.deepEqual(answers.map((answer) => String(answer.status)).toSorted(), ['200', '403', '403'])
  const members = await world.engine.db.selectFrom('members').selectAll().execute()
  assert.equal(members.length, 1)
  // Those who lost have no account either.
  assert.equal((await world.engine.db.selectFrom('users').select('id').execute()).length, 1)
})

test('AC-1 an owner link ends after a day, and with the next one', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const first = tokenOf(await world.engine.auth.ownerLink())
  const second = tokenOf(await world.engine.auth.ownerLink())
  assert.equal((await world.fetch('/setup', { body: { token: first, ...PERSON } })).status, 403)
  await clock.advance(24 * 3_600_000)
  assert.equal((await world.fetch('/setup', { body: { token: second, ...PERSON } })).status, 403)
})

test('AC-5 sign-up is closed, unless the configuration opens it', async (t) => {
  const closed = await makeWorld(t)
  const refused = await closed.fetch('/api/auth/sign-up/email', { body: PERSON })
  assert.equal(refused.status, 403)
  assert.equal((await json(refused))['message'], 'Sign-up is closed')
  assert.deepEqual(await closed.engine.db.selectFrom('users').select('id').execute(), [])
  const open = await makeWorld(t, { config: { signUp: 'open' } })
  const made = await open.fetch('/api/auth/sign-up/email', { body: PERSON })
  assert.equal(made.status, 200)
  const cookie = cookieOf(made)
  const org = await open.fetch('/api/auth/organization/create', {
    body: { name: 'Acme', slug: 'acme' },
    headers: { cookie },
  })
  assert.equal(org.status, 200, await org.clone().text())
  const me = await json(await open.fetch('/v1/whoami', { headers: { cookie } }))
  assert.deepEqual(
    (me['orgs'] as { slug: string; role: string }[]).map(({ slug, role }) => [slug, role]),
    [['acme', 'owner']],
  )
})

test('AC-5 an invitation joins the invited person with the invited role, once', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const invited = await world.fetch('/v1/invitations', {
    body: { orgId: 'platform', email: 'Guest@Example.test', role: 'admin' },
    headers: { cookie: owner.cookie },
  })
  assert.equal(invited.status, 200, await invited.clone().text())
  const { link, id } = await json(invited)
  const token = tokenOf(String(link))
  assert.ok(!String(id).includes(token), 'the id tells nothing of the link')
  const person = { name: 'Gus', email: 'guest@example.test', password: 'another good password' }
  const other = await world.fetch('/invitation', {
    body: { token, ...person, email: 'mallory@example.test' },
  })
  assert.equal(other.status, 403)
  assert.equal((await world.fetch('/invitation', { body: { token: 'x', ...person } })).status, 403)
  const joined = await world.fetch('/invitation', { body: { token, ...person } })
  assert.equal(joined.status, 200, await joined.clone().text())
  const cookie = cookieOf(joined)
  const me = await json(await world.fetch('/v1/whoami', { headers: { cookie } }))
  assert.equal((me['orgs'] as { role: string }[])[0]?.role, 'admin')
  assert.equal(me['platform_operator'], false)
  assert.equal((await world.fetch('/invitation', { body: { token, ...person } })).status, 403)
})

test('AC-5 whoever has an account accepts an invitation with its password, and no other', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const acme = await world.makeOrg('acme')
  const key = await world.orgKey('owner', acme)
  const none = await world.fetch('/v1/invitations', {
    body: { orgId: 'acme', email: owner.email },
    headers: { 'x-api-key': key },
  })
  assert.equal((await json(none))['code'], 'INVALID_STATE')
  await world.engine.db
    .insertInto('members')
    .values({
      id: 'mem_1',
      organizationId: acme,
      userId: owner.userId,
      role: 'owner',
      createdAt: new Date(),
    })
    .execute()
  const { link } = await world
    .client(key)
    .access.invitations.create({ orgId: 'acme', email: 'second@example.test', role: 'guest' })
  const token = tokenOf(link)
  const person = { name: 'S', email: 'second@example.test', password: 'a password of ten' }
  assert.equal((await world.fetch('/invitation', { body: { token, ...person } })).status, 200)
  const next = await world
    .client(await world.orgKey('owner'))
    .access.invitations.create({ orgId: 'platform', email: 'second@example.test' })
  const wrong = await world.fetch('/invitation', {
    body: { token: tokenOf(next.link), ...person, password: 'not the password' },
  })
  assert.equal(wrong.status, 400)
  const right = await world.fetch('/invitation', {
    body: { token: tokenOf(next.link), ...person },
  })
  assert.equal(right.status, 200)
  const me = await json(await world.fetch('/v1/whoami', { headers: { cookie: cookieOf(right) } }))
  assert.deepEqual((me['orgs'] as { slug: string }[]).map((org) => org.slug).toSorted(), [
    'acme',
    'platform',
  ])
})

test('AC-1 session tokens and device codes are hashed at rest, and the hash opens nothing', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const response = await signIn(world, owner)
  const { token } = await json(response)
  assert.equal(typeof token, 'string')
  const rows = await world.engine.db.selectFrom('sessions').select('token').execute()
  assert.ok(rows.some((row) => row.token === sha256Hex(String(token))))
  assert.ok(rows.every((row) => row.token !== token))
  const as = async (bearer: string): Promise<number> =>
    (await world.fetch('/v1/whoami', { headers: { authorization: `Bearer ${bearer}` } })).status
  assert.equal(await as(String(token)), 200)
  assert.equal(await as(sha256Hex(String(token))), 401)
  const code = await json(
    await world.fetch('/api/auth/device/code', { body: { client_id: 'ccp' } }),
  )
  const kept = await world.engine.db.selectFrom('deviceCode').select('deviceCode').execute()
  assert.deepEqual(kept, [{ deviceCode: sha256Hex(String(code['device_code'])) }])
})

test('AC-1 signing out ends the sign-in, and revoke-sessions ends all of them', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const [first, second] = [
    cookieOf(await signIn(world, owner)),
    cookieOf(await signIn(world, owner)),
  ]
  const status = async (cookie: string): Promise<number> =>
    (await world.fetch('/v1/whoami', { headers: { cookie } })).status
  assert.deepEqual([await status(first), await status(second)], [200, 200])
  const out = await world.fetch('/api/auth/sign-out', {
    method: 'POST',
    headers: { cookie: first },
  })
  assert.equal(out.status, 200)
  assert.deepEqual([await status(first), await status(second)], [401, 200])
  const all = await world.fetch('/api/auth/revoke-sessions', {
    method: 'POST',
    headers: { cookie: second },
  })
  assert.equal(all.status, 200, await all.text())
  assert.deepEqual([await status(second), await status(owner.cookie)], [401, 401])
})

test('AC-1 a terminal signs in by a device code that a person approves', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const poll = async (
    device_code: unknown,
  ): Promise<{ status: number; error: unknown; body: Record<string, unknown> }> => {
    const response = await world.fetch('/api/auth/device/token', {
      body: {
        grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
        device_code,
        client_id: 'ccp',
      },
    })
    const body = await json(response)
    return { status: response.status, error: body['error'], body }
  }
  const asked = await json(
    await world.fetch('/api/auth/device/code', { body: { client_id: 'ccp' } }),
  )
  const { device_code, user_code } = asked
  assert.equal(asked['verification_uri'], `${world.url}/device`)
  assert.deepEqual(
    [(await poll(device_code)).error, (await poll(device_code)).error],
    ['authorization_pending', 'slow_down'],
  )
  const approve = (headers: Record<string, string>): Promise<Response> =>
    world.fetch('/api/auth/device/approve', { body: { userCode: user_code }, headers })
  assert.equal((await approve({})).status, 401)
  const { cookie } = owner
  const seen = await world.fetch(`/api/auth/device?user_code=${String(user_code)}`, {
    headers: { cookie },
  })
  assert.equal((await json(seen))['status'], 'pending')
  assert.equal((await approve({ cookie })).status, 200)
  // As if the five seconds between polls had passed.
  await world.engine.db.updateTable('deviceCode').set({ lastPolledAt: null }).execute()
  const { body } = await poll(device_code)
  const bearer = String(body['access_token'])
  const me = await world.client(bearer).access.whoami({})
  assert.equal(me.id, owner.userId)
  assert.equal((await poll(device_code)).error, 'invalid_grant')
  const stranger = await world.fetch('/api/auth/device/code', { body: { client_id: 'other' } })
  assert.equal(stranger.status, 400)
})

test("AC-1 the command line's own sign-in works against this engine", async (t) => {
  const world = await makeWorld(t)
  const { cookie, userId } = await world.signUpOwner()
  let shown = { userCode: '', address: '' }
  let sleeps = 0
  const clock: Clock = {
    ...systemClock,
    // As if the seconds between two polls had passed, and a person approved meanwhile.
    async sleep() {
      await world.engine.db.updateTable('deviceCode').set({ lastPolledAt: null }).execute()
      if (sleeps++ < 2) return
      const { userCode } = shown
      await world.fetch(`/api/auth/device?user_code=${userCode}`, { headers: { cookie } })
      await world.fetch('/api/auth/device/approve', { body: { userCode }, headers: { cookie } })
    },
  }
  const { signal } = new AbortController()
  const token = await signInByDevice({ url: world.url, clock, signal }, (code) => (shown = code))
  assert.equal(sleeps, 3)
  assert.equal(shown.address, `${world.url}/device?user_code=${shown.userCode}`)
  assert.equal((await world.client(token).access.whoami({})).id, userId)
})

test('000-75 an API key that was revoked opens nothing: at once here, within 10 s elsewhere', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const admin = world.client(await world.orgKey('admin'))
  const { key, secret } = await admin.access.keys.create({ orgId: 'platform', name: 'ci' })
  const status = async (): Promise<number> =>
    (await world.fetch('/v1/whoami', { headers: { 'x-api-key': secret ?? '' } })).status
  assert.equal(await status(), 200)
  // Another engine revokes it: this one finds out when what it remembers is old.
  await world.engine.db.deleteFrom('apikey').where('id', '=', key.id).execute()
  await clock.advance(9_999)
  assert.equal(await status(), 200)
  await clock.advance(1)
  assert.equal(await status(), 401)
  const next = await admin.access.keys.create({ orgId: 'platform', name: 'ci' })
  const bearer = { authorization: `Bearer ${next.secret ?? ''}` }
  assert.equal((await world.fetch('/v1/whoami', { headers: bearer })).status, 200)
  await admin.access.keys.revoke({ orgId: 'platform', id: next.key.id })
  assert.equal((await world.fetch('/v1/whoami', { headers: bearer })).status, 401)
})

test('AC-5 a key expires, and its last use is written', async (t) => {
  const clock = fakeClock(Date.now())
  const world = await makeWorld(t, { clock })
  const admin = world.client(await world.orgKey('admin'))
  const { key, secret } = await admin.access.keys.create({
    orgId: 'platform',
    name: 'a day',
    role: 'guest',
    expiresInDays: 1,
  })
  const mine = world.client(secret ?? '')
  await mine.compute.nodes.list({ orgId: 'platform' })
  await world.engine.auth.keys.flush()
  const { keys } = await admin.access.keys.list({ orgId: 'platform' })
  const listed = keys.find((one) => one.id === key.id)
  assert.equal(listed?.last_used_at, new Date(clock.now()).toISOString())
  assert.equal(listed?.expires_at, new Date(clock.now() + 24 * 3_600_000).toISOString())
  await clock.advance(24 * 3_600_000)
  await assert.rejects(mine.compute.nodes.list({ orgId: 'platform' }), { code: 'UNAUTHENTICATED' })
})

test('AC-3 sign-in is limited to ten a minute an address, which a client cannot choose', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const statuses: number[] = []
  for (let n = 0; n < 11; n++) {
    const forged = { 'x-forwarded-for': `203.0.113.${n}`, 'x-clutch-client-ip': `203.0.113.${n}` }
    const wrong = { email: owner.email, password: `wrong password ${n}` }
    statuses.push((await signIn(world, wrong, forged)).status)
  }
  assert.deepEqual(statuses, [...Array(10).fill(401), 429])
  assert.equal((await signIn(world, owner)).status, 429)
})

test('AC-3 behind a trusted proxy the address is what the proxy saw', async (t) => {
  const world = await makeWorld(t, {
    config: { trustedProxies: ['127.0.0.1'], signInsPerMinute: 1 },
  })
  const owner = await world.signUpOwner()
  const from = async (address: string): Promise<number> =>
    (await signIn(world, owner, { 'x-forwarded-for': `198.51.100.9, ${address}` })).status
  assert.deepEqual(
    [await from('203.0.113.1'), await from('203.0.113.1'), await from('203.0.113.2')],
    [200, 429, 200],
  )
})

test('AC-3 tries of links are limited too', async (t) => {
  const world = await makeWorld(t)
  const tries: number[] = []
  for (let n = 0; n < 11; n++)
    tries.push((await world.fetch('/setup', { body: { token: `guess${n}`, ...PERSON } })).status)
  assert.deepEqual(tries, [...Array(10).fill(403), 429])
})

test('AC-1 cookies are HttpOnly and SameSite, and over https Secure and __Host-', async (t) => {
  const plain = await makeWorld(t)
  const owner = await plain.signUpOwner()
  for (const cookie of (await signIn(plain, owner)).headers.getSetCookie())
    assert.match(cookie, /^clutch\.\w+=.*HttpOnly; SameSite=Lax/)
  const secure = await makeWorld(t, { publicUrl: 'https://clutch.example.test' })
  const link = await secure.engine.auth.ownerLink()
  assert.ok(link?.startsWith('https://clutch.example.test/setup#'))
  const joined = await secure.fetch('/setup', { body: { token: tokenOf(link), ...PERSON } })
  assert.equal(joined.status, 200, await joined.clone().text())
  for (const cookie of joined.headers.getSetCookie()) {
    assert.match(cookie, /^__Host-clutch\.\w+=.*Path=\/; HttpOnly; Secure; SameSite=Lax/)
    assert.doesNotMatch(cookie, /Domain/)
  }
  const headers = { cookie: cookieOf(joined) }
  assert.equal((await secure.fetch('/v1/whoami', { headers })).status, 200)
})

test("AC-1 of the identity system's own routes only those that audit and check can be reached", async (t) => {
  const world = await makeWorld(t)
  const { cookie } = await world.signUpOwner()
  for (const path of [
    '/api-key/create',
    '/api-key/verify',
    '/organization/invite-member',
    '/organization/accept-invitation',
    '/organization/delete',
    '/delete-user',
    '/revoke-session',
  ]) {
    const response = await world.fetch(`/api/auth${path}`, { body: {}, headers: { cookie } })
    assert.equal(response.status, 404, path)
  }
})

test('OP-6 a sign-in and a joining are in the audit trail', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  await signIn(world, owner, { 'x-request-id': 'request-of-mine' })
  const rows = await world.engine.db
    .selectFrom('events')
    .select(['kind', 'actor', 'ip', 'requestId'])
    .orderBy('id')
    .execute()
  assert.deepEqual(
    rows.map((row) => [row.kind, row.actor, row.ip]),
    [
      ['member.joined', owner.userId, '127.0.0.1'],
      ['auth.sign-in', owner.userId, '127.0.0.1'],
    ],
  )
  assert.equal(rows[1]?.requestId, 'request-of-mine')
})

test('AC-4 who is not the platform owner makes no organization', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const { link } = await world
    .client(await world.orgKey('owner'))
    .access.invitations.create({ orgId: 'platform', email: 'm@example.test', role: 'member' })
  const person = { name: 'M', email: 'm@example.test', password: 'a password of ten' }
  const joined = await world.fetch('/invitation', { body: { token: tokenOf(link), ...person } })
  const make = (cookie: string, slug: string): Promise<Response> =>
    world.fetch('/api/auth/organization/create', {
      body: { name: slug, slug },
      headers: { cookie },
    })
  assert.equal((await make(cookieOf(joined), 'mine')).status, 403)
  assert.equal((await make(owner.cookie, 'acme')).status, 200)
  for (const slug of ['Acme', 'org_1', 'a b', 'x'.repeat(64)])
    assert.equal((await make(owner.cookie, slug)).status, 400, slug)
  const update = (data: object): Promise<Response> =>
    world.fetch('/api/auth/organization/update', {
      body: { organizationId: world.platformOrgId, data },
      headers: { cookie: owner.cookie },
    })
  assert.equal((await update({ slug: 'mine' })).status, 400, 'the platform stays known by its slug')
  assert.equal((await update({ name: 'Our platform' })).status, 200)
  // Nor may a member change who belongs to the org.
  const members = await world.engine.db.selectFrom('members').selectAll().execute()
  const victim = members.find((row) => row.userId === owner.userId)
  const removed = await world.fetch('/api/auth/organization/remove-member', {
    body: { memberIdOrEmail: victim?.id, organizationId: world.platformOrgId },
    headers: { cookie: cookieOf(joined) },
  })
  assert.notEqual(removed.status, 200)
})

test('AC-5 a person who is removed from an org is out at once', async (t) => {
  const world = await makeWorld(t)
  const owner = await world.signUpOwner()
  const { link } = await world
    .client(await world.orgKey('owner'))
    .access.invitations.create({ orgId: 'platform', email: 'm@example.test', role: 'admin' })
  const person = { name: 'M', email: 'm@example.test', password: 'a password of ten' }
  const cookie = cookieOf(
    await world.fetch('/invitation', { body: { token: tokenOf(link), ...person } }),
  )
  const list = async (): Promise<number> =>
    (await world.fetch('/v1/nodes?orgId=platform', { headers: { cookie } })).status
  assert.equal(await list(), 200)
  const removed = await world.fetch('/api/auth/organization/remove-member', {
    body: { memberIdOrEmail: 'm@example.test', organizationId: world.platformOrgId },
    headers: { cookie: owner.cookie },
  })
  assert.equal(removed.status, 200, await removed.clone().text())
  assert.equal(await list(), 403)
  const kinds = await sql<{ kind: string }>`
    select kind from events where org_id = ${world.platformOrgId} order by id desc limit 1
  `.execute(world.engine.db)
  assert.equal(kinds.rows[0]?.kind, 'auth.organization.remove-member')
})
