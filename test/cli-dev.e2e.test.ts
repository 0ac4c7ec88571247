// `ccp dev` as people start, break and stop it.
import assert from 'node:assert/strict'
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { until } from '#lib/until.ts'
import { ccpPath, startDevBed, type DevBed } from './cli-dev-bed.ts'
import { checkout, cleanEnv, commandOf, openFolder, processesOf, start } from './cli-dev-run.ts'

const STOP_MS = 45_000
const WORD_COUNT = join(checkout, 'examples/word-count/word-count.wasm')

let bed: DevBed
before(async () => {
  bed = await startDevBed()
})
after(() => bed.close())

test('OP-1 ccp dev says what it did with times, where the console is and how to become owner', () => {
  const said = bed.dev.output()
  assert.match(said, /✓ engine is ready +[\d.]+ m?s/)
  assert.match(said, /✓ node local takes work +[\d.]+ m?s/)
  assert.match(said, new RegExp(`Console +http://127.0.0.1:${bed.http}`))
  assert.match(said, new RegExp(`Become owner +http://127.0.0.1:${bed.http}/setup#\\S+`))
  assert.equal(statSync(join(bed.home, 'secrets/dev-key')).mode & 0o777, 0o600)
})

test('OP-1 a second start on the same folder and a taken port are refused, naming who is there', async (t) => {
  const again = await bed.startDev().ended
  assert.equal(again.code, 1)
  assert.match(again.err, new RegExp(`^ALREADY_RUNNING: .*${bed.http}.*pid ${bed.dev.child.pid}`))
  const other = openFolder(t, 'ccp-dev-other-')
  const env = cleanEnv({ HOME: bed.user })
  const taken = await start(ccpPath, ['dev', '--home', other, '--port', String(bed.http)], { env })
    .ended
  assert.equal(taken.code, 1)
  assert.match(
    taken.err,
    new RegExp(
      `^PORT_TAKEN: port ${bed.http} is taken by node engine\\.ts \\(pid \\d+\\)[^]*--port`,
    ),
  )
})

test('OP-1 a program that dies is started again, and says so', async () => {
  assert.equal((await bed.ccp(['functions', 'deploy', WORD_COUNT])).code, 0)
  const engine = processesOf(bed.home).find((pid) => commandOf(pid).includes('src/bin/engine.ts'))
  process.kill(engine!, 'SIGKILL')
  await until(
    'the engine is back',
    () => /engine ended \(signal SIGKILL\)/.test(bed.dev.output()),
    10_000,
  )
  await until(
    'a node takes work again',
    async () => {
      const { code, out } = await bed.ccp(['functions', 'invoke', 'word-count', '--stdin', '-'])
      return code === 0 && out.trim() !== ''
    },
    60_000,
  )
})

test('OP-1 kill -9 of ccp dev takes its programs with it; the next start finds the same platform', async () => {
  bed.dev.child.kill('SIGKILL')
  await bed.dev.ended
  const left = (): string => processesOf(bed.home).map(commandOf).join('\n')
  await until('every program is gone', () => left() === '', STOP_MS).catch((error: unknown) => {
    throw new Error(`still there: ${left()}`, { cause: error })
  })
  bed.dev = bed.startDev()
  await bed.ready(bed.dev)
  assert.match(bed.dev.output(), /node local takes work +\S+ \S+ +enrolled before/)
  const { functions } = await bed.json<{ functions: { name: string }[] }>(['functions', 'list'])
  assert.ok(functions.some((one) => one.name === 'word-count'))
})

test('OP-1 Ctrl-C stops all of it cleanly', async () => {
  bed.dev.child.kill('SIGINT')
  const ended = await bed.dev.ended
  assert.equal(ended.code, 0, ended.err)
  assert.doesNotMatch(ended.err, /killed/)
  assert.deepEqual(processesOf(bed.home), [])
})

test('OP-4 ccp dev --sim N adds N nodes that take work; --once picks free ports and ends by itself', async () => {
  const env = cleanEnv({ HOME: bed.user })
  const ended = await start(ccpPath, ['dev', '--home', bed.home, '--sim', '5', '--once'], { env })
    .ended
  assert.equal(ended.code, 0, ended.out + ended.err)
  assert.match(ended.out, /✓ 5 simulated nodes take work +[\d.]+ m?s/)
  assert.deepEqual(processesOf(bed.home), [])
})
