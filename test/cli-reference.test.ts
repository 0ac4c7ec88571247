// docs/reference says what the code says, and every procedure has its command.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { Meta } from '#api/base.ts'
import { contract } from '#api/contract.ts'
import { root as commandTree } from '#cli/app.ts'
import { referencePages } from '../script/reference/pages.ts'

const folder = join(import.meta.dirname, '../docs/reference')

test('OP-7 the generated reference is current: node_modules/.bin/node script/reference.ts writes it', async () => {
  for (const [name, text] of Object.entries(await referencePages()))
    assert.equal(readFileSync(join(folder, name), 'utf8'), text, name)
})

/** 'nodes set-tier' for every command of the tree. */
function commandNames(map: typeof commandTree, path: string[] = []): string[] {
  return map.getAllEntries().flatMap((entry) => {
    const at = [...path, entry.name['convert-camel-to-kebab']]
    return 'getAllEntries' in entry.target ? commandNames(entry.target, at) : [at.join(' ')]
  })
}

function metas(at: unknown): Meta[] {
  if (typeof at !== 'object' || at === null) return []
  if ('~orpc' in at) return [(at['~orpc'] as { meta: Meta }).meta]
  return Object.values(at).flatMap(metas)
}

test('OP-7 every procedure names a command that exists, or says why there is none', () => {
  const commands = commandNames(commandTree)
  const all = metas(contract)
  assert.ok(all.length >= 20)
  for (const { cli } of all) {
    if (typeof cli === 'string') assert.ok(commands.includes(cli), `no command '${cli}'`)
    else assert.notEqual(cli.none, 'unset')
  }
})
