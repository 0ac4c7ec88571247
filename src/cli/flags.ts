// Flags that every command has, and the shape of its help (CP-10).
import type { Role } from '#api/base.ts'

/** The contract's ROLES, which would load it. */
export const ROLE_NAMES: readonly Role[] = ['guest', 'member', 'admin', 'owner']

/** `--json` and `--org-id`: what each command that calls the engine takes. */
export type CommonFlags = { readonly json?: boolean; readonly orgId?: string }

export const json = {
  kind: 'boolean',
  brief: 'Print JSON: full ids, exact times, no styling',
  optional: true,
  withNegated: false,
} as const

export const orgId = {
  kind: 'parsed',
  parse: String,
  brief: 'The organization, by id or slug',
  placeholder: 'org',
  optional: true,
} as const

export const common = { json, orgId }

export const yes = {
  kind: 'boolean',
  brief: 'Do not ask',
  optional: true,
  withNegated: false,
} as const

/** An optional flag with a text value. */
export const text = (brief: string, placeholder: string) =>
  ({ kind: 'parsed', parse: String, brief, placeholder, optional: true }) as const

/** A number; text that is none goes on as it is: the contract refuses it with the field, its range and the text. */
export const number = (brief: string, placeholder = 'n') =>
  ({
    kind: 'parsed',
    parse: (input: string) =>
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- refused by the contract before it is sent
      /^-?\d+(\.\d+)?$/.test(input) ? Number(input) : (input as unknown as number),
    brief,
    placeholder,
    optional: true,
  }) as const

/** A flag that is either there or not. */
export const flag = (brief: string) =>
  ({ kind: 'boolean', brief, optional: true, withNegated: false }) as const

/** One required positional argument. */
export const argument = (placeholder: string, brief: string, words: readonly string[] = []) =>
  ({ parse: String, placeholder, brief, proposeCompletions: proposing(words) }) as const

/** What Tab offers for an argument that is one of a few words. */
export const proposing =
  (words: readonly string[]) =>
  (partial: string): string[] =>
    words.filter((word) => word.startsWith(partial))

const EXIT_CODES = '0 ok · 1 failed · 2 the command line could not be read · 77 not signed in'

/** The help of a command: what it does, more about it, examples, exit codes. */
export function docs(spec: {
  brief: string
  more?: string
  examples: readonly string[]
  exitCodes?: string
}): { brief: string; fullDescription: string } {
  const parts = [
    `${spec.brief}.`,
    ...(spec.more === undefined ? [] : [spec.more]),
    `Examples:\n${spec.examples.map((example) => `  $ ${example}`).join('\n')}`,
    `Exit codes: ${spec.exitCodes ?? EXIT_CODES}`,
  ]
  return { brief: spec.brief, fullDescription: parts.join('\n\n') }
}
