// Streaming through the invoker (FN-9's engine side), and what is done again elsewhere (FN-6).
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { fakeClock } from '#lib/fake-clock.ts'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'
import { slotDrift } from '#store/functions/slots.ts'
import type { InvokeRequest } from '#engine/functions/invoker.ts'
import { type Bed, gate, invokerBed, request } from '#test/invoker-bed.ts'
import type { Script } from '#test/scripted-nodes.ts'

async function ready(t: TestContext, over: object = {}): Promise<Bed> {
  const bed = await invokerBed(t)
  await bed.add(['node-a1'], ['node-a2'])
  await bed.deploy('hello', over)
  return bed
}

const invoke = (bed: Bed, over: Partial<InvokeRequest> = {}) =>
  bed.invoker.invoke(request(bed.world, over))

const all = (bed: Bed, script: Script): void => {
  for (const id of ['node-a1', 'node-a2']) bed.nodes.scripts.set(id, script)
}

/** The node's session ends while the guest runs. */
const lost =
  (bed: Bed): Script =>
  async (invocation) => {
    await invocation.start(false)
    bed.nodes.lose(invocation.nodeRecordId)
  }

const noStreams = (bed: Bed) => until('every stream is closed', () => bed.nodes.openStreams() === 0)

/** Pieces that are sent when the test says so; `asked` counts how often a piece was asked for. */
function source() {
  const pieces: (Uint8Array | Error | undefined)[] = []
  const state = { asked: 0, returned: false, send, end: () => send(undefined), fail, stream }
  let arrived = Promise.withResolvers<void>()
  function send(piece: Uint8Array | Error | undefined): void {
    pieces.push(piece)
    arrived.resolve()
  }
  function fail(error: Error): void {
    send(error)
  }
  async function* stream(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) {
        state.asked++
        while (pieces.length === 0) {
          await arrived.promise
          arrived = Promise.withResolvers()
        }
        const piece = pieces.shift()
        if (piece === undefined) return
        if (piece instanceof Error) throw piece
        yield piece
      }
    } finally {
      state.returned = true
    }
  }
  return state
}

test('FN-9 stdin travels piece by piece while stdout comes back, whole, and the history counts it', async (t) => {
  const bed = await ready(t)
  all(bed, async (invocation) => {
    await invocation.say({ t: 'artifact', have: true })
    for (let m = await invocation.hear(); m.t === 'stdin'; m = await invocation.hear())
      await invocation.stdout(Buffer.from(m.bytes).toString().toUpperCase())
    await invocation.stdout('x'.repeat(100_000))
    await invocation.result({ kind: 'exited', exitCode: 0 })
  })
  const stdin = source()
  const heard: string[] = []
  const over = {
    stdin: stdin.stream(),
    onStdout: (bytes: Uint8Array) => void heard.push(Buffer.from(bytes).toString()),
  }
  const answer = invoke(bed, over)
  for (const word of ['one', 'two', 'three']) {
    stdin.send(Buffer.from(word))
    await until(`${word} is back`, () => heard.at(-1) === word.toUpperCase())
  }
  stdin.end()
  const { outcome, stdout, stdoutTruncated } = await answer
  assert.deepEqual(outcome, { kind: 'exited', exitCode: 0 })
  assert.deepEqual([stdout.length, stdoutTruncated], [0, false])
  assert.equal(heard.join('').length, 11 + 100_000)
  assert.equal(bed.nodes.opened[0]?.header.stdout, 'whole')
  await bed.invoker.flushHistory()
  const row = await bed.world.engine.db
    .selectFrom('invocations')
    .select('stdoutBytes')
    .executeTakeFirst()
  assert.equal(row?.stdoutBytes, 100_011)
})

test('FN-9 a caller that takes no output holds the node back, and loses none of it', async (t) => {
  const bed = await ready(t)
  let written = 0
  all(bed, async (invocation) => {
    await invocation.start(true)
    for (let i = 0; i < 64; i++) {
      await invocation.stdout(new Uint8Array(32 * 1024).fill(i))
      written++
    }
    await invocation.result({ kind: 'exited', exitCode: 0 })
  })
  const go = Promise.withResolvers<void>()
  let taken = 0
  const onStdout = async (bytes: Uint8Array): Promise<void> => {
    await go.promise
    assert.equal(bytes[0], Math.floor(taken / (32 * 1024)))
    taken += bytes.length
  }
  const answer = invoke(bed, { onStdout })
  await until('the node writes', () => written > 0)
  await systemClock.sleep(100)
  assert.ok(written < 16, `${written} pieces were written to nobody`)
  go.resolve()
  assert.equal((await answer).outcome.kind, 'exited')
  assert.equal(taken, 64 * 32 * 1024)
})

test('FN-9 the time that a caller takes to read is not the node’s', async (t) => {
  const clock = fakeClock()
  const bed = await invokerBed(t, { clock })
  await bed.add(['node-a1'])
  await bed.deploy('hello', { timeoutMs: 1_000 })
  bed.nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    await invocation.stdout('slow')
    await invocation.result({ kind: 'exited', exitCode: 0 })
  })
  const go = Promise.withResolvers<void>()
  let given = false
  const answer = invoke(bed, { onStdout: () => ((given = true), go.promise) })
  await until('it is given', () => given)
  await clock.advance(70_000)
  go.resolve()
  assert.equal((await answer).outcome.kind, 'exited')
})

test('FN-9 a caller that never takes its output holds no unit and no place of its org for ever', async (t) => {
  const clock = fakeClock()
  const bed = await invokerBed(t, { clock })
  await bed.add(['node-a1'])
  await bed.deploy('hello', { timeoutMs: 1_000 })
  let given = 0
  const never = { onStdout: () => (given++, new Promise<void>(() => undefined)) }
  bed.nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    await invocation.stdout('never taken')
    await invocation.result({ kind: 'timeout', message: 'over' })
  })
  const first = invoke(bed, never)
  await until('it is given', () => given === 1)
  await clock.advance(75_000)
  assert.equal(bed.invoker.running(), 1)
  await clock.advance(1_001)
  assert.equal((await first).outcome.kind, 'timeout')
  // And the loss of the node is heard of at once.
  bed.nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    await invocation.stdout('never taken')
    await until('it is given', () => given === 2)
    bed.nodes.lose(invocation.nodeRecordId)
  })
  assert.equal((await invoke(bed, never)).outcome.kind, 'node-lost')
  assert.equal(bed.invoker.running(), 0)
  await noStreams(bed)
})

test('FN-9 a caller that takes a piece a minute gets no more than a minute beyond the time', async (t) => {
  const clock = fakeClock()
  const bed = await invokerBed(t, { clock })
  await bed.add(['node-a1'])
  await bed.deploy('hello', { timeoutMs: 1_000 })
  bed.nodes.scripts.set('node-a1', async (invocation) => {
    await invocation.start(true)
    for (;;) await invocation.stdout('more')
  })
  let given = 0
  let take = (): void => undefined
  const onStdout = () => {
    given++
    return new Promise<void>((resolve) => void (take = resolve))
  }
  const answer = invoke(bed, { onStdout })
  for (let i = 1; i <= 3; i++) {
    await until('it is given', () => given === i)
    await clock.advance(25_000)
    take()
  }
  await until('it is given', () => given === 4)
  await clock.advance(1_001)
  assert.equal((await answer).outcome.kind, 'timeout')
})

test('FN-9 a caller that goes away while it holds the node back ends the invocation', async (t) => {
  const bed = await ready(t)
  all(bed, async (invocation) => {
    await invocation.start(true)
    await invocation.stdout('x')
    await invocation.closed()
  })
  const caller = new AbortController()
  let given = false
  const answer = invoke(bed, {
    signal: caller.signal,
    onStdout: () => ((given = true), new Promise<void>(() => undefined)),
  })
  await until('it is given', () => given)
  caller.abort(new Error('gone'))
  assert.equal((await answer).outcome.kind, 'cancelled')
  await noStreams(bed)
})

test('FN-9 a stdin that breaks, and a taker that throws, are the caller’s end', async (t) => {
  const bed = await ready(t)
  const broken = source()
  const first = invoke(bed, { stdin: broken.stream() })
  await until('it is asked', () => broken.asked === 1)
  broken.fail(new Error('the upload broke'))
  assert.equal((await first).outcome.kind, 'cancelled')
  all(bed, async (invocation) => {
    await invocation.start(true)
    await invocation.stdout('x')
    await invocation.closed()
  })
  for (const onStdout of [
    () => {
      throw new Error('no')
    },
    () => Promise.reject(new Error('no')),
  ])
    assert.equal((await invoke(bed, { onStdout })).outcome.kind, 'cancelled')
  await noStreams(bed)
})

test('FN-9 a guest that ends before its stdin does lets go of it', async (t) => {
  const bed = await ready(t)
  all(bed, async (invocation) => {
    await invocation.say({ t: 'artifact', have: true })
    await invocation.hear()
    await invocation.result({ kind: 'exited', exitCode: 3 })
  })
  const stdin = source()
  stdin.send(Buffer.from('some'))
  const { outcome } = await invoke(bed, { stdin: stdin.stream() })
  assert.deepEqual(outcome, { kind: 'exited', exitCode: 3 })
  stdin.send(Buffer.from('more'))
  await until('it is let go', () => stdin.returned)
})

test('FN-6 an idempotent function whose node is lost runs once more, elsewhere, and answers from there', async (t) => {
  const bed = await ready(t, { idempotent: true })
  const first = await invoke(bed)
  const id = first.node!.nodeId
  bed.nodes.scripts.set(id, lost(bed))
  const second = await invoke(bed)
  assert.equal(second.outcome.kind, 'exited')
  assert.notEqual(second.node?.nodeId, id)
  assert.equal(bed.nodes.opened.length, 3)
  assert.deepEqual(await slotDrift(bed.world.engine.db), [])
})

test('FN-6 it is done again once: a second lost node is told', async (t) => {
  const bed = await ready(t, { idempotent: true })
  await bed.add(['node-a3'])
  for (const id of ['node-a1', 'node-a2', 'node-a3']) bed.nodes.scripts.set(id, lost(bed))
  const { outcome } = await invoke(bed)
  assert.equal(outcome.kind, 'node-lost')
  assert.equal(new Set(bed.nodes.opened.map(({ nodeRecordId }) => nodeRecordId)).size, 2)
  assert.equal(bed.nodes.opened.length, 2)
})

test('FN-6 without another node, and without the idempotent flag, it is node-lost', async (t) => {
  const bed = await invokerBed(t)
  await bed.add(['node-a1'])
  await bed.deploy('again', { idempotent: true })
  await bed.deploy('once')
  bed.nodes.scripts.set('node-a1', lost(bed))
  const began = systemClock.monotonic()
  for (const name of ['again', 'once']) {
    const { outcome } = await invoke(bed, { name })
    assert.equal(outcome.kind, 'node-lost', name)
    bed.nodes.connect('node-a1')
  }
  assert.ok(systemClock.monotonic() - began < 3_000)
  assert.equal(bed.nodes.opened.length, 2)
})

test('FN-6 what was read of a streamed stdin or given of stdout is not done again', async (t) => {
  const bed = await ready(t, { idempotent: true })
  all(bed, lost(bed))
  const stdin = source()
  stdin.send(Buffer.from('once'))
  stdin.end()
  const first = await invoke(bed, { stdin: stdin.stream() })
  assert.equal(first.outcome.kind, 'node-lost')
  assert.equal(bed.nodes.opened.length, 1)
  bed.nodes.connect(bed.nodes.opened[0]!.nodeRecordId)
  all(bed, async (invocation) => {
    await invocation.start(true)
    await invocation.stdout('half')
    await invocation.result({ kind: 'fault', message: 'broken' })
  })
  const second = await invoke(bed, { onStdout: () => undefined })
  assert.equal(second.outcome.kind, 'fault')
  assert.equal(bed.nodes.opened.length, 2)
})

test('FN-6 a streamed stdin that nobody read goes to the next node', async (t) => {
  const bed = await ready(t)
  bed.nodes.refuseStreams.add('node-a1')
  for (let i = 0; i < 4; i++) {
    const stdin = source()
    stdin.send(Buffer.from('whole'))
    stdin.end()
    const { outcome, stdout } = await invoke(bed, { stdin: stdin.stream() })
    assert.deepEqual([outcome.kind, Buffer.from(stdout).toString()], ['exited', 'whole'])
  }
})

test('FN-6 a node that is lost while it runs many: each is told or done again, and every unit comes back', async (t) => {
  const bed = await ready(t, { idempotent: true, cpuMillis: 250 })
  const hold = gate()
  all(bed, hold.script)
  const calls = Array.from({ length: 12 }, () => invoke(bed))
  await until('all run', () => hold.begun === 12)
  const [one] = bed.nodes.opened
  bed.nodes.lose(one!.nodeRecordId)
  hold.open()
  for (const call of calls) assert.equal((await call).outcome.kind, 'exited')
  await noStreams(bed)
  assert.deepEqual(await slotDrift(bed.world.engine.db), [])
})
