// better-auth keeps session tokens and device codes as they are; here they are hashed on the way to the database.
// 1. A value is hashed when it is written and in every condition that compares it; what a caller looked up by value is
//    answered with that value, everything else with the hash, which opens nothing.
// 2. All ways into the adapter pass here, those inside its transactions too.
import { sha256Hex } from '#lib/bytes.ts'

/** The secret column of each model that has one. */
const SECRETS: { readonly [model: string]: string | undefined } = {
  session: 'token',
  deviceCode: 'deviceCode',
}

type Where = { field: string; value: unknown; operator?: string }
type Row = Record<string, unknown>
type Query = {
  model: string
  where?: Where[]
  data?: Row
  update?: Row
  set?: Row
}
type Method = (query: Query) => Promise<unknown>

/** Every method that names a model. */
const METHODS = new Set([
  'create',
  'findOne',
  'findMany',
  'count',
  'update',
  'updateMany',
  'delete',
  'deleteMany',
  'consumeOne',
  'incrementOne',
])

/** The adapter with its secret columns hashed. */
export function hashingAdapter<A extends object>(adapter: A): A {
  return new Proxy(adapter, {
    get(target, name, receiver) {
      const value: unknown = Reflect.get(target, name, receiver)
      if (typeof value !== 'function' || typeof name !== 'string') return value
      if (name === 'transaction')
        return (run: (inner: object) => Promise<unknown>) =>
          value.call(target, (inner: object) => run(hashingAdapter(inner)))
      if (!METHODS.has(name)) return value
      return hashed((query) => value.call(target, query))
    },
  })
}

function hashed(method: Method): Method {
  return async (query) => {
    const field = SECRETS[query.model]
    if (field === undefined) return method(query)
    // What was given in clear, by its hash: to put back into what is answered.
    const clear = new Map<string, string>()
    const hash = (value: unknown): unknown => {
      if (Array.isArray(value)) return value.map(hash)
      if (typeof value !== 'string') return value
      const kept = sha256Hex(value)
      clear.set(kept, value)
      return kept
    }
    const inRow = (row: Row | undefined): Row | undefined =>
      row && field in row ? { ...row, [field]: hash(row[field]) } : row
    const asked: Query = { ...query }
    if (query.where)
      asked.where = query.where.map((one) =>
        one.field === field ? { ...one, value: hash(one.value) } : one,
      )
    for (const part of ['data', 'update', 'set'] as const) {
      const row = inRow(query[part])
      if (row) asked[part] = row
    }
    return restored(await method(asked), field, clear)
  }
}

function restored(answer: unknown, field: string, clear: ReadonlyMap<string, string>): unknown {
  if (Array.isArray(answer)) return answer.map((row) => restored(row, field, clear))
  if (typeof answer !== 'object' || answer === null || !(field in answer)) return answer
  const row: Row = { ...answer }
  const kept = row[field]
  if (typeof kept === 'string') row[field] = clear.get(kept) ?? kept
  return row
}
