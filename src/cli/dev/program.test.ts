import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { count } from '#cli/dev/demo.ts'
import { freePort, holderOf, isFree } from '#cli/dev/ports.ts'
import { Program } from '#cli/dev/program.ts'
import { systemClock } from '#lib/clock.ts'
import { until } from '#lib/until.ts'

async function program(t: TestContext, source: string, finalCodes: number[] = []) {
  const folder = await mkdtemp(join(tmpdir(), 'ccp-program-'))
  const file = join(folder, 'child.mjs')
  await writeFile(file, source)
  const said: string[] = []
  const logFile = join(folder, 'child.log')
  const spec = { name: 'child', argv: [file], env: {}, logFile, finalCodes }
  const made = new Program(spec, { clock: systemClock, say: (text) => said.push(text) })
  t.after(async () => {
    await made.stop(1_000)
    await rm(folder, { recursive: true })
  })
  return { made, said, logFile }
}

const STAYS = 'console.log("up"); setInterval(() => {}, 1000)'

test('OP-1 a program that is kept starts again after a crash, with its words in the log', async (t) => {
  const { made, said } = await program(t, STAYS)
  await made.start()
  made.keepRunning()
  await until('it says up', async () => (await made.output()).includes('up'))
  const first = made.pid
  process.kill(first!, 'SIGKILL')
  await until('it runs again', () => made.pid !== first && made.ending === undefined)
  assert.deepEqual(said, ['child ended (signal SIGKILL); starting it again in 0.5 s'])
})

test('OP-1 an exit code that says "never again" is respected; one before it was kept is only remembered', async (t) => {
  const { made, said } = await program(t, 'process.exit(78)', [78])
  await made.start()
  await until('it ended', () => made.ending !== undefined)
  assert.deepEqual(made.ending, { code: 78, text: 'exit code 78' })
  assert.deepEqual(said, [])
  await made.start()
  made.keepRunning()
  await until('its end is told', () => said.length > 0)
  assert.match(
    said[0]!,
    /^child ended \(exit code 78\) and is not started again: see .*child\.log$/,
  )
})

test('OP-1 a program that does not stop is killed after its grace, and named', async (t) => {
  const { made, said } = await program(t, `process.on('SIGTERM', () => {}); ${STAYS}`)
  await made.start()
  await until('it says up', async () => (await made.output()).includes('up'))
  await made.stop(100)
  assert.equal(made.ending?.text, 'signal SIGKILL')
  assert.deepEqual(said, ['child did not stop within 0.1 s; killed'])
})

test('OP-10 a log that has grown is put aside at a start', async (t) => {
  const { made, logFile } = await program(t, STAYS)
  await writeFile(logFile, Buffer.alloc(11 * 1024 * 1024, 'x'))
  await made.start()
  await until('it says up', async () => (await made.output()).includes('up'))
  assert.equal(await readFile(logFile, 'utf8'), 'up\n')
  assert.equal((await stat(`${logFile}.1`)).size, 11 * 1024 * 1024)
})

test('OP-1 a program gets exactly one SIGTERM when the process that started it is killed', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'ccp-guard-'))
  t.after(() => rm(folder, { recursive: true }))
  const [child, parent, log] = ['child.mjs', 'parent.ts', 'log'].map((name) => join(folder, name))
  await writeFile(
    child!,
    `process.on('SIGTERM', () => { console.log('term'); setTimeout(() => process.exit(), 300) })
     setInterval(() => {}, 1000); console.log('up')`,
  )
  await writeFile(
    parent!,
    `const { Program } = await import(${JSON.stringify(import.meta.resolve('#cli/dev/program.ts'))})
     const { systemClock } = await import(${JSON.stringify(import.meta.resolve('#lib/clock.ts'))})
     const spec = { name: 'child', argv: [process.argv[2]], env: {}, logFile: process.argv[3], finalCodes: [] }
     await new Program(spec, { clock: systemClock, say() {} }).start()
     setInterval(() => {}, 1000)`,
  )
  const { spawn } = await import('node:child_process')
  const dying = spawn(process.execPath, [parent!, child!, log!], { stdio: 'inherit' })
  const said = (): Promise<string> => readFile(log!, 'utf8').catch(() => '')
  await until('it says up', async () => (await said()).includes('up'))
  dying.kill('SIGKILL')
  await until('it says term', async () => (await said()).includes('term'))
  await systemClock.sleep(400)
  assert.equal(await said(), 'up\nterm\n')
})

test('OP-1 a taken port is seen, on TCP and on UDP, with the name of the program that has it', async (t) => {
  const port = await freePort('tcp+udp')
  assert.equal(await isFree(port, 'tcp+udp'), true)
  assert.equal(await holderOf(port), undefined)
  const { createSocket } = await import('node:dgram')
  const socket = createSocket('udp4')
  t.after(() => socket.close())
  await new Promise<void>((done) => socket.bind(port, '127.0.0.1', done))
  assert.equal(await isFree(port, 'tcp'), true)
  assert.equal(await isFree(port, 'tcp+udp'), false)
  assert.match((await holderOf(port)) ?? '', new RegExp(`\\(pid ${process.pid}\\)$`))
})

test('OP-1 the demonstration counts like LC_ALL=C wc', () => {
  assert.equal(count(Buffer.from('')), '0 0 0')
  assert.equal(count(Buffer.from('a b\n\tc d\n')), '2 4 9')
  assert.equal(count(Buffer.from('a \u0001 é')), '0 1 6')
})
