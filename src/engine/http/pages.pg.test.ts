// The engine's own pages, their script run against the real engine by a stand-in for the browser.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runInNewContext } from 'node:vm'
import { cookieOf, makeWorld, type World } from '#test/world.ts'

type Page = {
  message: () => { text: string; wrong: boolean }
  /** Where the script sent the browser. */
  went: () => string | undefined
  /** Submits the page's form by its button of this value. */
  submit(fields: Record<string, string>, button?: string): Promise<void>
  value(name: string): string
}

/** Cookies as a browser keeps them. */
type Jar = { cookie: string }

/** Opens a page: takes the form and its inputs from the HTML that the engine serves, and runs the script that it names. */
async function open(world: World, jar: Jar, address: string): Promise<Page> {
  const url = new URL(address, world.url)
  const html = await (await world.fetch(url.pathname)).text()
  const script = /<script type="module" src="([^"]+)"/.exec(html)?.[1]
  assert.ok(script, `${url.pathname} names its script`)
  const code = await (await world.fetch(script)).text()
  const [, formId = ''] = /<form id="([^"]+)"/.exec(html) ?? []
  const inputs = new Map(
    [...html.matchAll(/<input\s[^>]*?name="([^"]+)"/g)].map(([, name = '']) => [
      name,
      { value: '' },
    ]),
  )
  assert.ok(html.includes('id="message"') && inputs.size > 0)
  const classes = new Set<string>()
  const message = {
    textContent: '',
    classList: {
      toggle: (name: string, on: boolean) => (on ? classes.add(name) : classes.delete(name)),
    },
  }
  let listener: ((event: object) => void) | undefined
  const form = {
    inert: false,
    addEventListener: (kind: string, fn: (event: object) => void): void => {
      assert.equal(kind, 'submit')
      listener = fn
    },
  }
  let went: string | undefined
  const browser = {
    document: {
      querySelector: (selector: string): unknown => {
        if (selector === '#message') return message
        const [id, name] = /^#([\w-]+)(?: input\[name=(\w+)\])?$/.exec(selector)?.slice(1) ?? []
        if (id !== formId) return null
        return name === undefined ? form : (inputs.get(name) ?? null)
      },
    },
    location: {
      hash: url.hash,
      search: url.search,
      origin: url.origin,
      pathname: url.pathname,
      assign: (to: string) => void (went = to),
    },
    history: { replaceState: () => undefined },
    FormData: class {
      *[Symbol.iterator](): Iterator<[string, string]> {
        for (const [name, { value }] of inputs) yield [name, value]
      }
    },
    fetch: async (
      path: string,
      init: { method: string; body?: string; headers?: Record<string, string> },
    ) => {
      const response = await world.fetch(path, {
        method: init.method,
        headers: {
          ...init.headers,
          'sec-fetch-site': 'same-origin',
          ...(jar.cookie && { cookie: jar.cookie }),
        },
        ...(init.body === undefined ? {} : { body: init.body }),
      })
      const set = cookieOf(response)
      if (set !== '') jar.cookie = set
      return response
    },
    URL,
    URLSearchParams,
  }
  runInNewContext(code, browser)
  return {
    message: () => ({ text: message.textContent, wrong: classes.has('wrong') }),
    went: () => went,
    value: (name) => inputs.get(name)?.value ?? assert.fail(`no input ${name}`),
    async submit(fields, button) {
      for (const [name, value] of Object.entries(fields)) {
        const input = inputs.get(name)
        assert.ok(input, `the form has no input ${name}`)
        input.value = value
      }
      if (button !== undefined) assert.ok(html.includes(`value="${button}"`))
      assert.ok(listener, 'the script listens to the form')
      listener({ preventDefault: () => undefined, submitter: { value: button ?? '' } })
      const deadline = Date.now() + 10_000
      do {
        assert.ok(Date.now() < deadline, 'the page does not finish')
        await new Promise((resolve) => setTimeout(resolve, 5))
      } while (form.inert)
    },
  }
}

const person = { email: 'olive@example.test', password: 'correct horse battery' }

test('AC-1 through the pages: the first owner joins, signs in, and lets a terminal in', async (t) => {
  const world = await makeWorld(t)
  const link = (await world.engine.auth.ownerLink()) ?? ''
  const jar: Jar = { cookie: '' }
  const setup = await open(world, jar, link)
  await setup.submit({ name: 'Olive', ...person, password: 'short' })
  assert.equal(setup.message().wrong, true)
  assert.match(setup.message().text, /password must have at least 10 characters/)
  await setup.submit({ name: 'Olive', ...person })
  assert.deepEqual(setup.message(), {
    text: 'The account is made and you are signed in.',
    wrong: false,
  })
  assert.equal((await world.fetch('/v1/whoami', { headers: { cookie: jar.cookie } })).status, 200)

  const asked = (await (
    await world.fetch('/api/auth/device/code', { body: { client_id: 'ccp' } })
  ).json()) as { verification_uri_complete: string; user_code: string; device_code: string }
  const stranger: Jar = { cookie: '' }
  const before = await open(world, stranger, asked.verification_uri_complete)
  assert.equal(before.value('code'), asked.user_code)
  await before.submit({}, 'approve')
  const to = before.went() ?? ''
  assert.equal(to, `/sign-in?next=${encodeURIComponent(`/device?user_code=${asked.user_code}`)}`)
  const signIn = await open(world, stranger, to)
  await signIn.submit({ ...person, password: 'not the password' })
  assert.equal(signIn.message().wrong, true)
  await signIn.submit(person)
  assert.equal(signIn.went(), `/device?user_code=${asked.user_code}`)
  const device = await open(world, stranger, signIn.went() ?? '')
  await device.submit({}, 'approve')
  assert.deepEqual(device.message(), { text: 'The terminal is signed in.', wrong: false })
  const token = await world.fetch('/api/auth/device/token', {
    body: {
      grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
      device_code: asked.device_code,
      client_id: 'ccp',
    },
  })
  assert.equal(token.status, 200)
})

test('a sign-in sends nobody to another site', async (t) => {
  const world = await makeWorld(t)
  await world.signUpOwner(person)
  for (const next of [
    'https://evil.test/x',
    '//evil.test/x',
    '/\\evil.test',
    'javascript:alert(1)',
  ]) {
    const page = await open(world, { cookie: '' }, `/sign-in?next=${encodeURIComponent(next)}`)
    await page.submit(person)
    assert.equal(page.went(), '/', next)
  }
})

test('a terminal can be refused, and a wrong code is told', async (t) => {
  const world = await makeWorld(t)
  const { cookie } = await world.signUpOwner(person)
  const asked = (await (
    await world.fetch('/api/auth/device/code', { body: { client_id: 'ccp' } })
  ).json()) as { user_code: string; device_code: string }
  const page = await open(world, { cookie }, '/device')
  await page.submit({ code: 'NOTACODE' }, 'approve')
  assert.equal(page.message().wrong, true)
  await page.submit({ code: asked.user_code.toLowerCase() }, 'deny')
  assert.deepEqual(page.message(), { text: 'The terminal was refused.', wrong: false })
})

test('AC-5 an invitation is taken through its page', async (t) => {
  const world = await makeWorld(t)
  await world.signUpOwner()
  const { link } = await world
    .client(await world.orgKey('owner'))
    .access.invitations.create({ orgId: 'platform', email: person.email })
  const page = await open(world, { cookie: '' }, link ?? '')
  await page.submit({ name: 'Olive', ...person })
  assert.equal(page.message().wrong, false, page.message().text)
  const again = await open(world, { cookie: '' }, link ?? '')
  await again.submit({ name: 'Olive', ...person })
  assert.match(again.message().text, /was used.*ask for a new one/)
})

test('every page names an icon that is there: a browser would ask for another and be refused', async (t) => {
  const world = await makeWorld(t)
  for (const path of ['/', '/sign-in', '/setup', '/invitation', '/device', '/docs']) {
    const icon = /<link rel="icon" href="([^"]+)"/.exec(await (await world.fetch(path)).text())?.[1]
    assert.ok(icon, path)
    const answer = await world.fetch(icon)
    assert.deepEqual([answer.status, answer.headers.get('content-type')], [200, 'image/svg+xml'])
  }
})
