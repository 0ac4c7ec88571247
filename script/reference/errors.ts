// errors.md: the closed set of codes, and every finer reason with the code that it comes with and where.
import { statusOf } from '#lib/error.ts'
import { REASONS } from '#core/function/answer.ts'
import { code, page, sources, table } from './markdown.ts'

const MEANS: Record<keyof typeof statusOf, string> = {
  INVALID: 'what was sent is wrong; the message names the field and what would be right',
  UNAUTHENTICATED: 'no credential, or one that opens nothing',
  FORBIDDEN: 'known, but not allowed; a foreign or unknown organization reads the same',
  NOT_FOUND: 'no such thing in this organization',
  CONFLICT: 'it is there already, or was changed meanwhile',
  INVALID_STATE: 'not in this state; the message names it and the legal moves',
  TOO_LARGE: 'more bytes than are taken',
  RATE_LIMITED: 'too many requests a minute; Retry-After says when',
  QUOTA_EXCEEDED: 'the organization has as much as it may have',
  INTERNAL: 'a fault of the platform, logged under the request’s id',
  UNAVAILABLE: 'not now; worth another try',
}

export function errorsPage(): string {
  const codes = Object.entries(MEANS).map(([name, means]) => [
    code(name),
    String(statusOf[name as keyof typeof statusOf]),
    means,
  ])
  return page(
    'Errors',
    'A refusal has a code of this closed set, a message that says what was wrong, with which value, and what would be ' +
      'right, and mostly `data.reason`, a finer name, and `data.next`, what to do. `ccp` prints the reason, or the code ' +
      'when there is none, before the colon.',
    '## Codes',
    table(['Code', 'HTTP', 'Means'], codes),
    '## Reasons',
    table(['Reason', 'Code', 'Said by'], reasonRows()),
    '## Refusals of a session',
    'What a node hears instead of a welcome, and the agent prints; where trying again cannot help it exits with 78.',
    refusals().map(code).join(', '),
    '## Reasons of an invocation',
    `An invocation that was admitted always answers 200; ${code('reason')} says how it failed: ${REASONS.map(code).join(', ')}.`,
  )
}

/** The union in the gateway that names them. */
function refusals(): string[] {
  const [admit] = sources(/^src\/engine\/gateway\/admit\.ts$/)
  const union = /export type RefusalReason =([^]*?)\n\n/.exec(admit?.text ?? '')?.[1] ?? ''
  return [...union.matchAll(/'(\w+)'/g)].map(([, reason = '']) => reason)
}

function reasonRows(): string[][] {
  const files = sources(/^src\/(?!sim\/|lib\/).*\.ts$/)
  const room = (path: string): string => path.split('/')[1] ?? ''
  const found = new Map<string, { codes: Set<string>; rooms: Set<string> }>()
  for (const { path, text } of files) {
    const mates = files.filter((mate) => room(mate.path) === room(path))
    const lent = mates.flatMap((mate) => makersIn(mate.text).filter(({ lends }) => lends))
    for (const [reason, name] of reasonsIn(text, [...makersIn(text), ...lent])) {
      const entry = found.get(reason) ?? { codes: new Set(), rooms: new Set() }
      entry.codes.add(name)
      entry.rooms.add(room(path))
      found.set(reason, entry)
    }
  }
  return [...found]
    .toSorted(([a], [b]) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1))
    .map(([reason, { codes, rooms }]) => [
      code(reason),
      [...codes].toSorted().map(code).join(', '),
      [...rooms].toSorted().join(', '),
    ])
}

/** A function that takes the reason and makes the error of it; `lends`: to other files of its room. */
type Maker = { maker: string; name: string; lends: boolean }

function makersIn(text: string): Maker[] {
  const makers =
    /\b(export )?(?:const|function) (\w+)\b[^{}]{0,120}?\breason: string\b[^]{0,200}?new AppError\(\s*'([A-Z_]+)'/g
  return [...text.matchAll(makers)].map(([, lends, maker = '', name = '']) => ({
    maker,
    name,
    lends: lends !== undefined,
  }))
}

/** Literal reasons: of `new AppError('CODE', …, { details: { reason: 'X' } })`, and of calls like `refusal('X', …)`. */
function* reasonsIn(text: string, makers: readonly Maker[]): Generator<[string, string]> {
  for (const part of text.split('new AppError(').slice(1)) {
    const name = /^\s*'([A-Z_]+)'/.exec(part)?.[1]
    const reason = /\breason: '([A-Za-z_]+)'/.exec(part.slice(0, 600))?.[1]
    if (name !== undefined && reason !== undefined) yield [reason, name]
  }
  for (const { maker, name } of makers)
    for (const call of text.matchAll(
      new RegExp(`\\b${maker}\\(\\s*(?:\\w+,\\s*)?'([A-Z_]+)'`, 'g'),
    ))
      if (call[1] !== undefined) yield [call[1], name]
}
