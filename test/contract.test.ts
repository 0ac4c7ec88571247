// What holds for every procedure of the contract, whoever adds one.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isProcedure } from '@orpc/server'
import type { z } from 'zod'
import type { Meta } from '#api/base.ts'
import { contract } from '#api/contract.ts'
import { router } from '#engine/procedures/router.ts'
import { statusOf } from '#lib/error.ts'

type Route = { method?: string; path?: string; summary?: string; tags?: readonly string[] }
type Definition = {
  meta: Meta
  route: Route
  errorMap: Record<string, unknown>
  inputSchema: z.ZodObject
  outputSchema: z.ZodObject
}
type Named = { name: string; definition: Definition }

/** Every procedure with its dotted name. */
function proceduresOf(part: object, path: string[] = []): Named[] {
  if ('~orpc' in part)
    return [{ name: path.join('.'), definition: part['~orpc'] as unknown as Definition }]
  return Object.entries(part).flatMap(([key, next]) => proceduresOf(next as object, [...path, key]))
}

const procedures = proceduresOf(contract)

test('every procedure has a handler', () => {
  assert.ok(procedures.length >= 20)
  for (const { name } of procedures) {
    let at: unknown = router
    for (const key of name.split('.')) at = Reflect.get(at as object, key)
    assert.ok(isProcedure(at), `${name} has no handler`)
  }
})

test('every procedure says what it does, for whom, and which command calls it', () => {
  for (const { name, definition } of procedures) {
    const { meta, route } = definition
    assert.ok((route.summary ?? '').length >= 10, `${name} has no summary`)
    assert.equal(route.tags?.length, 1, `${name} has no tag`)
    const why = typeof meta.cli === 'string' ? meta.cli : meta.cli.none
    assert.ok(why !== 'unset' && why.length >= 4, `${name} names no command and no reason`)
    assert.deepEqual(Object.keys(definition.errorMap).toSorted(), Object.keys(statusOf).toSorted())
  }
})

test('D51 every procedure has its own path, /v1/<noun>[/{id}[/<verb>]]', () => {
  const seen = new Map<string, string>()
  for (const { name, definition } of procedures) {
    const { method = '', path = '' } = definition.route
    assert.match(path, /^\/v1\/[a-z]+(\/(\{\w+\}(\/[a-z-]+)?|[a-z-]+))?$/, name)
    const line = `${method} ${path}`
    assert.equal(seen.get(line), undefined, `${name} and ${seen.get(line)} share ${line}`)
    seen.set(line, name)
    for (const [, parameter = ''] of path.matchAll(/\{(\w+)\}/g))
      assert.ok(parameter in definition.inputSchema.shape, `${name} has no field ${parameter}`)
    if (method === 'GET') assert.equal(definition.meta.idempotency, undefined, name)
  }
})

test('000-67 AC-2 every compute procedure needs orgId', () => {
  for (const { name, definition } of procedures) {
    if (!name.startsWith('compute.') && definition.meta.role === 'signed-in') continue
    const { orgId } = definition.inputSchema.shape
    assert.ok(orgId, `${name} takes no orgId`)
    const parsed = definition.inputSchema.safeParse({})
    const faults = parsed.error?.issues.filter((issue) => issue.path[0] === 'orgId') ?? []
    assert.equal(faults.length, 1, `${name} does without orgId`)
    assert.match(faults[0]!.message, /orgId is required/, name)
  }
})

test('000-72 setTrustTier, setDraining and revoke take the org, the record by its id, and what they change', () => {
  const takes = (verb: string): string[] => {
    const found = procedures.find(({ name }) => name === `compute.nodes.${verb}`)
    return Object.keys(found?.definition.inputSchema.shape ?? {})
  }
  // `version` is D41's.
  assert.deepEqual(takes('setTrustTier'), ['orgId', 'id', 'trustTier', 'version'])
  assert.deepEqual(takes('setDraining'), ['orgId', 'id', 'draining', 'version'])
  assert.deepEqual(takes('revoke'), ['orgId', 'id', 'version'])
})

test('PL-6 000-07 no procedure takes a node as a target for work', () => {
  for (const { name, definition } of procedures) {
    if (name.startsWith('compute.nodes.')) continue
    const fields = Object.keys(definition.inputSchema.shape)
    const targets = fields.filter((field) =>
      /node|host|machine|target|place|site|pool|instance|slot/i.test(field),
    )
    assert.deepEqual(targets, [], name)
  }
  // Beside them, verbs on nodes carry no work.
  for (const { name, definition } of procedures)
    if (name.startsWith('compute.nodes.'))
      for (const field of Object.keys(definition.inputSchema.shape))
        assert.doesNotMatch(field, /function|component|workload|work|image|args|stdin/i, name)
})

test('D51 every create takes an idempotency key, and one that gives a secret is never stored', () => {
  for (const { name, definition } of procedures) {
    const { meta } = definition
    const secret = Object.keys(definition.outputSchema.shape).some((field) =>
      ['token', 'secret', 'link'].includes(field),
    )
    assert.equal(meta.idempotency === 'once', secret, name)
    if (/\.(enroll|deploy|create)$/.test(name)) assert.ok(meta.idempotency, name)
  }
})

test('D40 a secret of an answer can be null, with a notice beside it', () => {
  for (const { name, definition } of procedures)
    for (const field of ['token', 'secret', 'link']) {
      const schema = definition.outputSchema.shape[field] as z.ZodType | undefined
      if (!schema) continue
      assert.ok(schema.safeParse(null).success, `${name}.${field}`)
      assert.ok('notice' in definition.outputSchema.shape, name)
    }
})

test('AC-4 reads are for guests, what the role table says for the others', () => {
  const roles = Object.fromEntries(
    procedures.map(({ name, definition }) => [name, definition.meta.role]),
  )
  assert.deepEqual(roles, {
    'access.whoami': 'signed-in',
    'access.keys.create': 'admin',
    'access.keys.list': 'admin',
    'access.keys.revoke': 'admin',
    'access.invitations.create': 'owner',
    'compute.nodes.enroll': 'admin',
    'compute.nodes.list': 'guest',
    'compute.nodes.get': 'guest',
    'compute.nodes.setTrustTier': 'admin',
    'compute.nodes.setDraining': 'admin',
    'compute.nodes.revoke': 'admin',
    'compute.nodes.revokeIdentity': 'admin',
    'compute.functions.deploy': 'member',
    'compute.functions.list': 'guest',
    'compute.functions.get': 'guest',
    'compute.functions.delete': 'member',
    'compute.functions.rollback': 'member',
    'compute.functions.invoke': 'member',
    'compute.functions.invocations': 'guest',
    'compute.placement.explain': 'guest',
    'compute.quotas.get': 'guest',
    'compute.quotas.set': 'platform-operator',
    'compute.events.list': 'guest',
  })
})

test('D19 rows are snake_case', () => {
  for (const { name, definition } of procedures)
    for (const [field, schema] of Object.entries(definition.outputSchema.shape)) {
      const shape = rowShape(schema as z.ZodType)
      // An action's result (invoke) is camelCase.
      for (const key of Object.keys(shape ?? {}))
        assert.match(key, /^[a-z0-9_]+$/, `${name}: ${field}.${key}`)
    }
})

function rowShape(schema: z.ZodType): Record<string, unknown> | undefined {
  if ('shape' in schema) return schema.shape as Record<string, unknown>
  if ('element' in schema) return rowShape(schema.element as z.ZodType)
  return undefined
}
