// procedures.md: every procedure of the contract with its two addresses, its right, its input and its answer.
import { z } from 'zod'
import type { Meta } from '#api/base.ts'
import { contract } from '#api/contract.ts'
import { rawRoutes, type RawRoute } from '#api/raw.ts'
import { code, page, table } from './markdown.ts'

type Leaf = {
  meta: Meta
  route: { method?: string; path?: string; summary?: string }
  inputSchema?: z.ZodType
  outputSchema?: z.ZodType
}
type JsonSchema = {
  type?: string | string[]
  format?: string
  enum?: unknown[]
  const?: unknown
  anyOf?: JsonSchema[]
  items?: JsonSchema
  properties?: Record<string, JsonSchema>
  additionalProperties?: unknown
  required?: string[]
  default?: unknown
  minimum?: number
  maximum?: number
  minLength?: number
  maxLength?: number
  pattern?: string
}

export function proceduresPage(): string {
  const parts = [...leaves(contract, [])].map(([name, leaf]) => procedure(name, leaf))
  return page(
    'Procedures',
    'Every procedure is served twice from one contract: as RPC (`POST /rpc/<path>`, what `ccp` uses) and as REST. ' +
      'Rows are snake_case, inputs and results of actions camelCase. Times are ISO 8601 in UTC. ' +
      'Creates take an `Idempotency-Key` header: the same key with the same body answers the same for 24 hours, with another body `CONFLICT`. ' +
      'Errors: see [errors](errors.md).',
    ...parts,
    '## Raw addresses',
    'Bytes as they are: each is served at this address only.',
    ...rawRoutes.map(rawRoute),
  )
}

function rawRoute(route: RawRoute): string {
  const query = route.query.map(({ name }) => name)
  const cli = route.cli.startsWith('none') ? route.cli : code(`ccp ${route.cli}`)
  const facts = [
    `- REST: ${code(`${route.method} ${route.path}${query.length === 0 ? '' : `?${query.join('=&')}=`}`)}`,
    `- Command: ${cli}`,
    `- Least role: ${route.leastRole}`,
    `- Rate limit: ${code(route.limit)}`,
  ]
  return [
    `### ${route.operationId}`,
    `${route.summary}.`,
    facts.join('\n'),
    ...route.about,
    `Body: ${route.body}. Answer: ${route.answer.about}.`,
    table(
      ['Status', 'Means'],
      route.statuses.map(([status, about]) => [String(status), about]),
    ),
  ].join('\n\n')
}

function* leaves(at: unknown, path: string[]): Generator<[string, Leaf]> {
  if (typeof at !== 'object' || at === null) return
  if ('~orpc' in at) yield [path.join('.'), at['~orpc'] as Leaf]
  else for (const [name, below] of Object.entries(at)) yield* leaves(below, [...path, name])
}

function procedure(name: string, { meta, route, inputSchema, outputSchema }: Leaf): string {
  const cli = typeof meta.cli === 'string' ? code(`ccp ${meta.cli}`) : `none: ${meta.cli.none}`
  const facts = [
    `- REST: ${code(`${route.method ?? 'POST'} ${route.path ?? ''}`)} · RPC: ${code(`/rpc/${name.replaceAll('.', '/')}`)}`,
    `- Command: ${cli}`,
    `- Least role: ${meta.role}`,
    ...(meta.idempotency === undefined ? [] : [`- ${IDEMPOTENCY[meta.idempotency]}`]),
    ...(meta.limit === undefined ? [] : [`- Rate limit: ${code(meta.limit)}`]),
  ]
  return [
    `## ${name}`,
    `${route.summary ?? ''}.`,
    facts.join('\n'),
    fields('Input', inputSchema, 'input'),
    fields('Answer', outputSchema, 'output'),
  ].join('\n\n')
}

const IDEMPOTENCY = {
  replay: '`Idempotency-Key`: a repetition answers the same',
  once: '`Idempotency-Key`: a repetition answers the record, without the secret',
  'at-most-once':
    '`Idempotency-Key`: it runs at most once; a repetition answers the same, or that nobody knows',
}

function fields(title: string, schema: z.ZodType | undefined, io: 'input' | 'output'): string {
  if (schema === undefined) return `${title}: nothing.`
  const json = z.toJSONSchema(schema, { io, unrepresentable: 'any' }) as JsonSchema
  const rows = Object.entries(json.properties ?? {}).flatMap(([name, field]) =>
    fieldRows(name, field, json.required?.includes(name) === true),
  )
  if (rows.length === 0) return `${title}: nothing.`
  return `${title}:\n\n${table(['Field', 'Type', 'Needed', 'Rule'], rows)}`
}

/** A record inside an answer is shown by its fields, one level down. */
function fieldRows(name: string, field: JsonSchema, needed: boolean): string[][] {
  const inner = field.properties ?? field.items?.properties
  const own = [code(name), typeText(field), needed ? 'yes' : 'no', ruleText(field)]
  if (inner === undefined || name.includes('.')) return [own]
  const mark = field.items ? `${name}[]` : name
  return [own, ...Object.entries(inner).flatMap(([key, below]) => nested(`${mark}.${key}`, below))]
}

const nested = (name: string, field: JsonSchema): string[][] => [
  [code(name), typeText(field), '', ruleText(field)],
]

function typeText(field: JsonSchema): string {
  if (field.anyOf) return [...new Set(field.anyOf.map(typeText))].join(' or ')
  if (field.enum) return field.enum.map((value) => code(String(value))).join(', ')
  if (field.type === 'array') return `list of ${typeText(field.items ?? {})}`
  if (field.type === 'object') return 'object'
  return [field.type ?? 'any'].flat().join(' or ') + (field.format ? ` (${field.format})` : '')
}

function ruleText(field: JsonSchema): string {
  const number = field.anyOf?.find((one) => one.minimum !== undefined) ?? field
  const rules: string[] = []
  if (number.minimum !== undefined && number.maximum !== undefined && number.maximum < 2 ** 53 - 1)
    rules.push(`${number.minimum}–${number.maximum}`)
  if (field.maxLength !== undefined) rules.push(`at most ${field.maxLength} characters`)
  if (field.pattern !== undefined && field.format === undefined) rules.push(code(field.pattern))
  if (field.default !== undefined) rules.push(`default ${code(JSON.stringify(field.default))}`)
  return rules.join(', ')
}
