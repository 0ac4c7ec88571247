// How long a body may take to come.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { listenHttp, type Listener } from '#engine/http/listen.ts'
import { fakeClock, type FakeClock } from '#lib/fake-clock.ts'
import { until } from '#lib/until.ts'

type Setup = { clock: FakeClock; dial: () => Promise<{ socket: Socket; heard: () => string }> }

async function setup(t: TestContext, listener: Listener): Promise<Setup> {
  const clock = fakeClock()
  const server = await listenHttp({ host: '127.0.0.1', port: 0 }, clock)
  server.serve(listener)
  t.after(async () => {
    const stopped = server.stop(1)
    await clock.advance(1)
    await stopped
  })
  return {
    clock,
    async dial() {
      const socket = connect(server.port, '127.0.0.1')
      t.after(() => socket.destroy())
      await once(socket, 'connect')
      let heard = ''
      socket.on('data', (bytes: Buffer) => void (heard += bytes.toString()))
      return { socket, heard: () => heard }
    },
  }
}

const HEAD = 'POST / HTTP/1.1\r\nhost: a\r\n'

test('AC-3 a body that has not come within two minutes ends its connection', async (t) => {
  const heads = ['content-length: 10\r\n\r\nfive!', 'transfer-encoding: chunked\r\n\r\n']
  let arrived = 0
  const { clock, dial } = await setup(t, (req) => {
    arrived++
    req.resume()
  })
  for (const head of heads) {
    const { socket, heard } = await dial()
    socket.write(HEAD + head)
    const before = arrived
    await until('the request', () => arrived > before - 1 && clock.pending() > 0)
    const closed = once(socket, 'close')
    await clock.advance(119_000)
    assert.equal(heard(), '')
    await clock.advance(1_000)
    await closed
    assert.match(heard(), /^HTTP\/1\.1 408 /)
  }
})

test('AC-3 what came in time, has no body or is watched by its reader has no such time', async (t) => {
  const { clock, dial } = await setup(t, (req, res, patient) => {
    if (req.headers['x-patient'] !== undefined) patient()
    req.resume()
    req.once('end', () => res.end('all of it'))
  })
  const late = await dial()
  late.socket.write(`${HEAD}x-patient: 1\r\ncontent-length: 4\r\n\r\n`)
  for (const head of [`${HEAD}\r\n`, `${HEAD}content-length: 2\r\n\r\nab`]) {
    const { socket, heard } = await dial()
    socket.write(head)
    await until('its answer', () => heard().endsWith('all of it'))
  }
  assert.equal(clock.pending(), 0)
  await clock.advance(600_000)
  late.socket.write('four')
  await until('the answer of the late one', () => late.heard().endsWith('all of it'))
})
