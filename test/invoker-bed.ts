// One engine's invoker for a test, with scripted nodes as its far side: real Postgres, real HTTP, real stream messages.
import { createHash } from 'node:crypto'
import type { TestContext } from 'node:test'
import { sql } from 'kysely'
import { type Clock, systemClock } from '#lib/clock.ts'
import { silentLogger } from '#lib/log.ts'
import { systemRandom } from '#lib/random.ts'
import { until } from '#lib/until.ts'
import type { Blobs } from '#store/blobs.ts'
import { connect, type StoreTarget } from '#store/connect.ts'
import { Listener } from '#store/notify.ts'
import { testTarget } from '#store/test-database.ts'
import { nodeRow, seedNodes } from '#store/test-fleet.ts'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import type { Invoker, InvokeRequest } from '#engine/functions/invoker.ts'
import { type Script, ScriptedNodes } from '#test/scripted-nodes.ts'
import { type Client, makeWorld, ORG, type World } from '#test/world.ts'

export type Bed = {
  world: World
  nodes: ScriptedNodes
  invoker: Invoker
  client: Client
  /** Undefined: the engine hears of no change that it does not make itself. */
  listener: Listener | undefined
  /** Resolves when the engine has heard of everything that is committed now. */
  heard: () => Promise<void>
  /** Adds nodes with a live session. */
  add: (...rows: [id: string, over?: Parameters<typeof nodeRow>[2]][]) => Promise<void>
  deploy: (name: string, over?: object) => Promise<void>
  invoke: (name: string, over?: object) => ReturnType<Client['compute']['functions']['invoke']>
}

export type BedOptions = {
  /** The invoker's; everything else goes by the system's. */
  clock?: Clock
  /** Does not listen for changes. */
  deaf?: boolean
  /** The database, if the test shares one between engines or stands in its way. */
  target?: StoreTarget
  /** Another engine's. */
  blobs?: Blobs
}

/** A preparer that makes an artifact of 200,000 bytes from whatever it gets: several chunks. */
export const prepare = async (bytes: Uint8Array, { memMb }: { memMb: number }) => ({
  ok: true as const,
  artifact: new Uint8Array(200_000).fill(
    createHash('sha256').update(bytes).update(`${memMb}`).digest()[0]!,
  ),
  kind: 'component' as const,
  preparer: 'test',
})

/** The preamble of a component, and a byte that makes it another. */
export const component = (other = 0): string =>
  Buffer.from([0, 0x61, 0x73, 0x6d, 0x0d, 0, 1, 0, other]).toString('base64')

let beds = 0

export async function invokerBed(t: TestContext, options: BedOptions = {}): Promise<Bed> {
  const { clock = systemClock, deaf = false } = options
  const target = options.target ?? (await testTarget(t))
  const db = connect(target, { max: 10 })
  const nodes = new ScriptedNodes()
  let invoker: Invoker | undefined
  const world = await makeWorld(t, {
    db,
    // Engines of one test must not have one name.
    seed: `bed ${beds++}`,
    gateway: () => nodes,
    invoker: (engine) => {
      const blobs = options.blobs ?? engine.blobs
      return (invoker = createInvoker({ ...engine, blobs, clock, prepare }))
    },
  })
  const ears = deaf ? undefined : listen(target, invoker!)
  t.after(async () => {
    await ears?.listener.stop()
    await invoker!.stop()
    await db.destroy()
  })
  if (ears) await until('it listens', () => ears.listener.hearing)
  const client = world.client(await world.orgKey('member'))
  const { functions } = client.compute
  const { engine } = world
  return {
    world,
    nodes,
    invoker: invoker!,
    client,
    listener: ears?.listener,
    async heard() {
      await ears?.heard(db)
    },
    async add(...rows) {
      await seedNodes(
        engine.db,
        rows.map(([id, over]) => nodeRow(id, world.platformOrgId, over)),
        engine.id,
      )
      for (const [id] of rows) nodes.connect(id)
    },
    deploy: async (name, over = {}) =>
      void (await functions.deploy({ orgId: ORG, name, component: component(), ...over })),
    invoke: (name, over = {}) => functions.invoke({ orgId: ORG, name, ...over }),
  }
}

/** As the engine's program does it; and a way to wait until a change of now has come through. */
function listen(target: StoreTarget, invoker: Invoker) {
  const echoes = new Set<string>()
  const listener = new Listener(
    {
      target,
      onChange(change) {
        if (change.kind === 'quota' && change.orgId.startsWith('echo_')) echoes.add(change.orgId)
        else invoker.changed(change)
      },
      onHearing: (hearing) => invoker.hearing(hearing),
    },
    { clock: systemClock, random: systemRandom, log: silentLogger },
  )
  listener.start()
  let count = 0
  const heard = async (db: World['engine']['db']): Promise<void> => {
    const echo = `echo_${count++}`
    // Said again and again: the listener may just be losing its connection.
    await until('the echo is heard', async () => {
      await sql`select pg_notify('clutch', ${`quota ${echo}`})`.execute(db)
      return echoes.has(echo)
    })
  }
  return { listener, heard }
}

export const request = (world: World, over: Partial<InvokeRequest> = {}): InvokeRequest => ({
  orgId: world.platformOrgId,
  name: 'hello',
  args: [],
  env: {},
  stdin: new Uint8Array(),
  timeoutMs: undefined,
  signal: new AbortController().signal,
  ...over,
})

export const slotsOf = (world: World) =>
  world.engine.db.selectFrom('slots').selectAll().orderBy('id').execute()

/** Units of all slots. */
export const unitsOf = async (world: World): Promise<number> =>
  (await slotsOf(world)).reduce((sum, { units }) => sum + units, 0)

/** Runs until the test says go; `begun` counts those that wait. */
export function gate() {
  const go = Promise.withResolvers<void>()
  const state = { begun: 0, open: () => go.resolve() }
  const script: Script = async (invocation) => {
    await invocation.start(false)
    state.begun++
    await go.promise
    await invocation.result({ kind: 'exited', exitCode: 0 })
  }
  return Object.assign(state, { script })
}
