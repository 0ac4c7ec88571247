// Every command that the README, the guides and the concepts tell people to type exists, with each of its flags.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import {
  generateHelpTextForAllCommands,
  type Application,
  type CommandContext,
} from '@stricli/core'
import { AGENT_HELP } from '#agent/config.ts'
import { buildApp } from '#cli/app.ts'

const root = join(import.meta.dirname, '..')
const pages = [
  'README.md',
  ...['guides', 'concepts'].flatMap((folder) =>
    readdirSync(join(root, 'docs', folder)).map((name) => `docs/${folder}/${name}`),
  ),
]

/** The lines of ```sh blocks, comments removed, and what stands in `…` elsewhere. */
function codeOf(page: string): string[] {
  const text = readFileSync(join(root, page), 'utf8')
  const blocks = [...text.matchAll(/^```sh\n([^]*?)^```/gm)].map(([, block = '']) => block)
  const inline = [...text.replaceAll(/^```[^]*?^```/gm, '').matchAll(/`([^`]+)`/g)]
  return [
    ...blocks.flatMap((block) => block.split('\n')),
    ...inline.map(([, code = '']) => code.replaceAll('\n', ' ')),
  ].map((line) => line.replace(/\s#\s.*$/, ''))
}

/** What is said to `program`, as words up to a pipe, a bracket or `--`. */
function saidTo(program: string, code: readonly string[]): string[][] {
  const call = new RegExp(`(?:^|[\\s($])(?:bin/)?${program} ([^|;<>)]+)`, 'g')
  return code.flatMap((line) =>
    [...line.matchAll(call)].map(([, rest = '']) => {
      const words = rest.trim().split(/\s+/)
      const end = words.indexOf('--')
      return end === -1 ? words : words.slice(0, end)
    }),
  )
}

const flagsOf = (words: readonly string[]): string[] =>
  words.filter((word) => word.startsWith('--')).map((word) => word.replace(/=.*/, ''))

const names = (help: string, flag: string): boolean =>
  new RegExp(`${flag}(?![\\w-])`).test(help) || flag === '--json'

test('OP-7 each ccp command in the README, the guides and the concepts exists, with its flags', () => {
  const app = buildApp('', false, () => {}) as unknown as Application<CommandContext>
  const commands = generateHelpTextForAllCommands(app).map(
    ([route, help]) => [route.split(' ').slice(1), help] as const,
  )
  let seen = 0
  for (const page of pages)
    for (const words of saidTo('ccp', codeOf(page))) {
      const found = commands
        .filter(([route]) => route.every((word, i) => words[i] === word))
        .toSorted(([a], [b]) => b.length - a.length)[0]
      const line = `${page}: ccp ${words.join(' ')}`
      assert.ok(found, `${line}: no such command`)
      for (const flag of flagsOf(words)) assert.ok(names(found[1], flag), `${line}: no ${flag}`)
      seen++
    }
  assert.ok(seen >= 20, `${seen} commands`)
})

test('OP-7 each flag of clutch-noded in the README, the guides and the concepts exists', () => {
  const lines = pages.flatMap((page) => saidTo('clutch-noded', codeOf(page)))
  assert.ok(lines.length >= 1)
  for (const flag of lines.flatMap(flagsOf)) assert.ok(names(AGENT_HELP, flag), flag)
})
