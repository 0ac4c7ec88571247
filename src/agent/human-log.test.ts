import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLogger } from '#lib/log.ts'
import { humanLines } from '#agent/human-log.ts'

test('ND-3 at a terminal a log line is a sentence with its time; errors say what they are', () => {
  let said = ''
  const log = createLogger(
    'noded',
    'info',
    humanLines((text) => (said += text)),
  )
  log.info({ transport: 'quic' }, 'connected to engine:443 over QUIC')
  log.warn('no session')
  log.error({ err: new Error('disk full') }, 'a stream failed')
  const lines = said.trimEnd().split('\n')
  assert.match(lines[0] ?? '', /^\d\d:\d\d:\d\d connected to engine:443 over QUIC$/)
  assert.match(lines[1] ?? '', /^\d\d:\d\d:\d\d warn: no session$/)
  assert.match(lines[2] ?? '', /^\d\d:\d\d:\d\d error: a stream failed \(disk full\)$/)
})

test('ND-3 what is no log line is passed on as it is', () => {
  let said = ''
  humanLines((text) => (said += text)).write('plain\n')
  assert.equal(said, 'plain\n')
})
