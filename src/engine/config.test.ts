import assert from 'node:assert/strict'
import { test } from 'node:test'
import { configHelp, nearest, parseConfig, settings } from '#engine/config.ts'

const refused = (env: Record<string, string>, argv: string[], message: RegExp): void => {
  assert.throws(
    () => parseConfig(env, argv),
    (error: { code: string; message: string }) => {
      assert.equal(error.code, 'INVALID')
      assert.match(error.message, message)
      return true
    },
  )
}

test('AC-3 rule 9 without anything set the defaults hold', () => {
  assert.deepEqual(parseConfig({}, []), {
    httpHost: '127.0.0.1',
    httpPort: 7070,
    sessionHost: '127.0.0.1',
    sessionPort: 7443,
    logLevel: 'info',
    trustedProxies: [],
    signUp: 'closed',
    signInsPerMinute: 10,
    enrollsPerMinute: 60,
    deploysPerMinute: 60,
    invokesPerMinute: 60_000,
    publicInvokesPerMinute: 600,
    unregisteredPerAddress: 64,
    shutdownMs: 10_000,
    dev: false,
  })
})

test('a flag goes before the environment; both ways of writing it hold', () => {
  const env = {
    CLUTCH_HTTP_PORT: '1',
    CLUTCH_LOG_LEVEL: 'warn',
    CLUTCH_TRUSTED_PROXIES: '10.0.0.1, 10.0.0.2',
  }
  const config = parseConfig(env, ['--http-port', '2', '--session-port=3', '--dev'])
  assert.equal(config.httpPort, 2)
  assert.equal(config.sessionPort, 3)
  assert.equal(config.logLevel, 'warn')
  assert.equal(config.dev, true)
  assert.deepEqual(config.trustedProxies, ['10.0.0.1', '10.0.0.2'])
  assert.equal(parseConfig({}, ['--dev', '--http-port', '9']).httpPort, 9)
  assert.equal(parseConfig({}, ['--dev=false']).dev, false)
})

test('rule 9 what is not known is an error that names the nearest', () => {
  refused({}, ['--http-prot', '1'], /--http-prot is no flag: did you mean --http-port\?/)
  refused(
    { CLUTCH_HTTP_PROT: '1' },
    [],
    /CLUTCH_HTTP_PROT is no setting: did you mean CLUTCH_HTTP_PORT\?/,
  )
  refused({}, ['stray'], /stray is no flag/)
  parseConfig(
    { CLUTCH_TEST_DATABASE_URL: 'x', CLUTCH_SOAK: '1', CLUTCH_TOKEN: 'x', PATH: '/bin' },
    [],
  )
})

test('rule 5 every fault is told at once, with its name and its value', () => {
  refused(
    { CLUTCH_LOG_LEVEL: 'loud', CLUTCH_TRUSTED_PROXIES: 'a,,b' },
    ['--http-port', '70000', '--public-url', 'ftp://x', '--sign-up', 'maybe', '--session-host'],
    /--session-host needs a value.*--http-port: .*got '70000'.*--public-url: .*CLUTCH_LOG_LEVEL: .*got 'loud'.*CLUTCH_TRUSTED_PROXIES.*--sign-up/,
  )
})

test('rule 9 a secret has no flag', () => {
  assert.equal(settings.find((one) => one.name === 'databaseUrl')?.flag, undefined)
  refused(
    {},
    ['--database-url', 'postgres://u:p@h/d'],
    /--database-url is no flag: did you mean --database-url-file\?/,
  )
  const env = { DATABASE_URL: 'postgres://u:p@h/d' }
  assert.equal(parseConfig(env, []).databaseUrl, env.DATABASE_URL)
})

test('names are unique, in one style, and all in the help', () => {
  const help = configHelp()
  for (const { env, flag, help: text } of settings) {
    assert.match(env, /^(CLUTCH|DATABASE)_[A-Z_]+$/)
    assert.ok(
      help.includes(text) &&
        help.includes(env) &&
        (flag === undefined || help.includes(`--${flag}`)),
    )
  }
  assert.equal(new Set(settings.map((one) => one.env)).size, settings.length)
})

test('the nearest takes the fewest edits', () => {
  assert.equal(nearest('hom', ['home', 'port', 'blobs']), 'home')
  assert.equal(nearest('', ['abc', 'a']), 'a')
})
