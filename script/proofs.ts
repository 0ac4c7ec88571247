// script/proofs.ts: writes docs/checklists/proofs.md, the requirements that hold with the tests that name them. An id
// counts as proven by the tests whose names carry it. What is added to the product adds its ids here.
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { code, page, table } from './reference/markdown.ts'

const root = join(import.meta.dirname, '..')

const range = (from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, at) => `000-${String(from + at).padStart(2, '0')}`)

const REQUIREMENTS =
  'ND-1 ND-2 ND-3 ND-4 ND-5 ND-8 ND-9 ND-10 ND-12 ND-13 ND-16 ND-19 ND-27 ND-29 ND-30 PL-1 PL-2 PL-3 PL-4 ' +
  'PL-6 FN-1 FN-2 FN-3 FN-4 FN-5 FN-6 FN-7 FN-8 FN-9 MC-4 AC-1 AC-2 AC-3 AC-4 AC-5 AC-6 CP-9 CP-10 ' +
  'OP-1 OP-2 OP-3 OP-6 OP-7'
const SENTENCES = [...range(2, 62), ...range(67, 76)]

/** Sentences about a screen of the console. */
const CONSOLE = [
  ...'000-20 000-28 000-29 000-30 000-31 000-37 000-38 000-41 000-42 000-50 000-56 000-57 000-59'.split(
    ' ',
  ),
  ...range(68, 70),
]
/** Sentences about machines. */
const MACHINES = ['000-26']

/** The ids that must have a test. */
export const wanted: readonly string[] = [...REQUIREMENTS.split(' '), ...SENTENCES].filter(
  (id) => !CONSOLE.includes(id) && !MACHINES.includes(id),
)

export type Proof = { file: string; name: string }

/** The tests by the ids in their names. */
export function proofs(): Map<string, Proof[]> {
  const found = new Map<string, Proof[]>()
  const list = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '*.test.ts'], {
    cwd: root,
    encoding: 'utf8',
  })
  for (const file of list.split('\n').filter((path) => path !== ''))
    for (const name of namesIn(readFileSync(join(root, file), 'utf8')))
      for (const [id] of name.matchAll(/\b(?:ND|PL|FN|MC|AC|CP|OP|D)-?\d+\b|\b\d{3}-\d\d\b/g))
        found.set(id, [...(found.get(id) ?? []), { file, name }])
  return found
}

/** What stands first in `test(…)`, `it(…)`, `describe(…)`: a literal, or a template as it is written. */
function namesIn(text: string): string[] {
  const calls = /\b(?:test|it|describe|suite)\(\s*(['"`])((?:\\.|(?!\1)[^])*)\1/g
  return [...text.matchAll(calls)].map((call) => call[2] ?? '')
}

function proofsPage(): string {
  const found = proofs()
  const rows = (ids: readonly string[]): string[][] =>
    ids.map((id) => {
      const files = Map.groupBy(found.get(id) ?? [], ({ file }) => file)
      const named = [...files].map(([file, tests]) => `${code(file)}${many(tests.length)}`)
      return [id, named.join('<br>') || '—']
    })
  const others = [...found.keys()].filter(
    (id) => !REQUIREMENTS.split(' ').includes(id) && !SENTENCES.includes(id),
  )
  const only = SENTENCES.filter((id) => wanted.includes(id))
  return page(
    'Proofs',
    'Which test proves which requirement: the tests whose names carry its id. `test/proofs.test.ts` fails when one has ' +
      'none. Written by `node_modules/.bin/node script/proofs.ts`.',
    '## Requirements',
    table(['Id', 'Tests'], rows(REQUIREMENTS.split(' '))),
    '## Sentences of seed 000',
    table(['Id', 'Tests'], rows(only)),
    '## Of the console and of machines',
    'These say what a screen shows or what a machine does; where a test names one, it is of what `ccp` or the engine has ' +
      'of it.',
    table(['Id', 'Tests'], rows([...CONSOLE, ...MACHINES])),
    '## Further ids that tests name',
    table(['Id', 'Tests'], rows(others.toSorted())),
  ).replace('script/reference.ts', 'script/proofs.ts')
}

const many = (count: number): string => (count === 1 ? '' : ` (${count})`)

if (import.meta.main) writeFileSync(join(root, 'docs/checklists/proofs.md'), proofsPage())
