// Who may call what (AC-2, AC-4, D45): every procedure × caller, over real HTTP, against the table that is checked in.
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { contract } from '#api/contract.ts'
import { createInvoker } from '#engine/functions/create-invoker.ts'
import { AppError } from '#lib/error.ts'
import { makeWorld, type World } from '#test/world.ts'

const TABLE = join(import.meta.dirname, 'policy.table.txt')

/** What a call of each procedure says beside orgId; `id` and `name` are of things of the org `acme`. */
type Things = { nodeId: string; keyId: string; functionName: string; n: number }
const inputs: Record<string, (things: Things) => Record<string, unknown>> = {
  'access.whoami': () => ({}),
  'access.keys.create': () => ({ name: 'k', role: 'guest' }),
  'access.keys.list': () => ({}),
  'access.keys.revoke': ({ keyId }) => ({ id: keyId }),
  'access.invitations.create': ({ n }) => ({ email: `p${n}@example.test`, role: 'guest' }),
  'compute.nodes.enroll': ({ n }) => ({ nodeId: `new-${n}`, trustTier: 'secure' }),
  'compute.nodes.list': () => ({}),
  'compute.nodes.get': ({ nodeId }) => ({ id: nodeId }),
  'compute.nodes.setTrustTier': ({ nodeId }) => ({ id: nodeId, trustTier: 'community' }),
  'compute.nodes.setDraining': ({ nodeId }) => ({ id: nodeId, draining: true }),
  'compute.nodes.revoke': ({ nodeId }) => ({ id: nodeId }),
  'compute.nodes.revokeIdentity': ({ nodeId }) => ({ id: nodeId }),
  'compute.functions.deploy': ({ n }) => ({
    name: `new-${n}`,
    component: Buffer.from('0061736d0100000000', 'hex').toString('base64'),
  }),
  'compute.functions.list': () => ({}),
  'compute.functions.get': ({ functionName }) => ({ name: functionName }),
  'compute.functions.delete': ({ functionName }) => ({ name: functionName }),
  'compute.functions.rollback': ({ functionName }) => ({ name: functionName }),
  'compute.functions.invoke': ({ functionName }) => ({ name: functionName }),
  'compute.functions.invocations': ({ functionName }) => ({ name: functionName }),
  'compute.placement.explain': ({ functionName }) => ({ name: functionName }),
  'compute.quotas.get': () => ({}),
  'compute.quotas.set': ({ n }) => ({ invocationsAtOnce: 100 + n }),
  'compute.events.list': () => ({}),
}

/** Procedures that name a thing: called with one of another org, their answer is NOT_FOUND. */
const NAMING = /"(id|name)":/
/** Whose stand-in refuses after the policy has passed, or that create under the name that they are given. */
const PASSED = new Set(['UNAVAILABLE', 'INVALID_STATE'])

const COLUMNS = [
  'nobody',
  'guest',
  'member',
  'admin',
  'owner',
  'elsewhere',
  'operator',
  "other's id",
] as const

function names(part: object, path: string[] = []): string[] {
  if ('~orpc' in part) return [path.join('.')]
  return Object.entries(part).flatMap(([key, next]) => names(next as object, [...path, key]))
}

let made = 0

/** Fresh things of the org, for one call. */
async function things(world: World, org: { id: string; admin: string }): Promise<Things> {
  const n = made++
  const client = world.client(org.admin)
  const { node } = await client.compute.nodes.enroll({
    orgId: org.id,
    nodeId: `node-${n}`,
    trustTier: 'secure',
  })
  const { key } = await client.access.keys.create({ orgId: org.id, name: `k${n}`, role: 'guest' })
  return { nodeId: node.id, keyId: key.id, functionName: await addFunction(world, org.id, n), n }
}

async function addFunction(world: World, orgId: string, n: number): Promise<string> {
  const { db } = world.engine
  const at = new Date(world.engine.clock.now())
  const [id, name] = [`fn_${n}`, `f-${n}`]
  const { sha256 } = await world.engine.blobs.put(Buffer.from(`component ${n}`))
  await db
    .insertInto('components')
    .values({ sha256, sizeBytes: 9, kind: 'preview1', createdAt: at })
    .execute()
  await db
    .insertInto('functions')
    .values({ id, orgId, name, currentVersion: 2, lastVersion: 2, createdAt: at, updatedAt: at })
    .execute()
  for (const version of [1, 2])
    await db
      .insertInto('functionVersions')
      .values({
        id: `fnv_${n}_${version}`,
        functionId: id,
        orgId,
        version,
        componentSha256: sha256,
        sizeBytes: 9,
        cpuMillis: 1000,
        memMb: 64,
        allowCommunity: false,
        region: null,
        timeoutMs: 1000,
        idempotent: false,
        public: false,
        createdAt: at,
        createdBy: 'a test',
      })
      .execute()
  return name
}

async function call(
  world: World,
  name: string,
  { input, headers }: { input: Record<string, unknown>; headers: Record<string, string> },
): Promise<string> {
  const path = `/rpc/${name.replaceAll('.', '/')}`
  const response = await world.fetch(path, { body: { json: input }, headers })
  const answer = (await response.json()) as { json: { code?: string } }
  const code = response.ok ? 'yes' : (answer.json.code ?? String(response.status))
  return PASSED.has(code) ? 'yes' : code
}

test(
  'AC-2 AC-4 D45 every procedure × caller is as the table says',
  { timeout: 120_000 },
  async (t) => {
    const prepare = (): Promise<never> =>
      Promise.reject(new AppError('UNAVAILABLE', 'a stand-in prepares nothing'))
    const world = await makeWorld(t, {
      config: { enrollsPerMinute: 10_000, deploysPerMinute: 10_000 },
      // The real one: it is what looks for the function.
      invoker: (engine) => createInvoker({ ...engine, prepare }),
    })
    t.after(() => world.engine.invoker.stop())
    const { cookie } = await world.signUpOwner()
    const acme = { id: await world.makeOrg('acme'), admin: '' }
    const other = { id: await world.makeOrg('other'), admin: '' }
    acme.admin = await world.orgKey('admin', acme.id)
    other.admin = await world.orgKey('admin', other.id)
    const key = async (...of: Parameters<World['orgKey']>): Promise<Record<string, string>> => ({
      'x-api-key': await world.orgKey(...of),
    })
    const callers: Record<(typeof COLUMNS)[number], Record<string, string>> = {
      nobody: {},
      guest: await key('guest', acme.id),
      member: await key('member', acme.id),
      admin: await key('admin', acme.id),
      owner: await key('owner', acme.id),
      elsewhere: await key('owner', other.id),
      operator: { cookie },
      "other's id": await key('owner', other.id),
    }
    assert.deepEqual(Object.keys(inputs).toSorted(), names(contract).toSorted())
    const rows: string[][] = [['procedure', ...COLUMNS]]
    for (const name of names(contract)) {
      const row = [name]
      for (const column of COLUMNS) {
        const input = inputs[name]!(await things(world, acme))
        const foreign = column === "other's id"
        if (foreign && (!NAMING.test(JSON.stringify(input)) || /create|deploy/.test(name))) {
          row.push('-')
          continue
        }
        const orgId = foreign ? other.id : acme.id
        row.push(await call(world, name, { input: { ...input, orgId }, headers: callers[column] }))
      }
      rows.push(row)
    }
    const widths = rows[0]!.map((_, at) => Math.max(...rows.map((row) => row[at]!.length)))
    const text = `${rows
      .map((row) =>
        row
          .map((cell, at) => cell.padEnd(widths[at]!))
          .join('  ')
          .trimEnd(),
      )
      .join('\n')}\n`
    if (process.argv.includes('--write')) writeFileSync(TABLE, text)
    assert.equal(text, readFileSync(TABLE, 'utf8'))
  },
)

test('000-02 no list of one org shows what is another’s', async (t) => {
  const world = await makeWorld(t)
  const acme = { id: await world.makeOrg('acme'), admin: '' }
  const other = { id: await world.makeOrg('other'), admin: '' }
  acme.admin = await world.orgKey('admin', acme.id)
  other.admin = await world.orgKey('admin', other.id)
  const theirs = await things(world, acme)
  await things(world, other)
  const headers = { 'x-api-key': other.admin }
  for (const name of names(contract).filter((one) => /\.(list|explain|whoami)$/.test(one))) {
    const path = `/rpc/${name.replaceAll('.', '/')}`
    const response = await world.fetch(path, { body: { json: { orgId: other.id } }, headers })
    const text = await response.text()
    assert.equal(response.status, 200, `${name}: ${text}`)
    for (const secret of [acme.id, theirs.nodeId, theirs.keyId, `"${theirs.functionName}"`])
      assert.ok(!text.includes(secret), `${name} shows ${secret}`)
  }
})
