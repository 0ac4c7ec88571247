import assert from 'node:assert/strict'
import test from 'node:test'
import { sql } from 'kysely'
import { systemClock } from '#lib/clock.ts'
import { silentLogger } from '#lib/log.ts'
import { systemRandom } from '#lib/random.ts'
import { connect, transaction } from '#store/connect.ts'
import { Listener, notify } from '#store/notify.ts'
import { testTarget } from '#store/test-database.ts'

const deps = { clock: systemClock, random: systemRandom, log: silentLogger }

async function until(what: string, test: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000
  while (!test()) {
    if (performance.now() > deadline) throw new Error(`waited too long for ${what}`)
    await systemClock.sleep(10)
  }
}

test('design 4.7 a notification arrives when its transaction commits, equal ones once, others not', async (t) => {
  const target = await testTarget(t)
  const store = connect(target)
  const heard: string[] = []
  let gaps = 0
  const listener = new Listener(
    {
      target,
      channels: ['placement', 'Odd "name'],
      onNotify: (channel, payload) => heard.push(`${channel} ${payload}`),
      onGap: () => gaps++,
    },
    deps,
  )
  t.after(() => store.destroy())
  t.after(() => listener.stop())
  listener.start()
  await until('listening', () => gaps === 1)
  await transaction(store, async (tx) => {
    await notify(tx, 'placement', 'a')
    await notify(tx, 'placement', 'a')
    await notify(tx, 'elsewhere', 'b')
    assert.deepEqual(heard, [])
  })
  const undone = transaction(store, async (tx) => {
    await notify(tx, 'placement', 'undone')
    throw new Error('no')
  })
  await assert.rejects(undone, /no/)
  await notify(store, 'Odd "name', 'é'.repeat(3999))
  await until('both', () => heard.length === 2)
  assert.deepEqual(heard, ['placement a', `Odd "name ${'é'.repeat(3999)}`])
  await assert.rejects(notify(store, 'placement', 'é'.repeat(4000)), /7999 bytes at most/)
})

test('design 4.7 a listener whose connection is cut listens again and says what it may have missed', async (t) => {
  const target = await testTarget(t)
  const store = connect(target)
  let heard = 0
  let gaps = 0
  const spec = { target, channels: ['c'], onNotify: () => void heard++, onGap: () => void gaps++ }
  const listener = new Listener(spec, deps)
  t.after(() => store.destroy())
  t.after(() => listener.stop())
  listener.start()
  for (let round = 1; round <= 3; round++) {
    await until('listening', () => gaps === round)
    await notify(store, 'c')
    await until('the notification', () => heard === round)
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'clutch listen'`.execute(store)
  }
})

test('design 4.7 a listener stops at once, also while there is no database', async (t) => {
  const target = await testTarget(t)
  for (const at of [target, { host: '/nonexistent', user: 'x', database: 'x' }]) {
    const listener = new Listener(
      { target: at, channels: ['c'], onNotify: () => undefined, onGap: () => undefined },
      deps,
    )
    listener.start()
    await systemClock.sleep(0)
    await listener.stop()
    assert.equal(listener.listening, false)
  }
})
