// The addresses that carry bytes as they are, beside the contract: oRPC holds a body whole. The engine's raw handlers
// serve them; the OpenAPI document and the reference tell of them from here.

export type RawRoute = {
  method: 'POST'
  /** Parameters in braces. */
  path: string
  operationId: string
  tag: string
  summary: string
  /** What a caller should know beyond the summary. */
  about: readonly string[]
  /** Without the word "role": for the reference's line. */
  leastRole: string
  limit: 'deploy' | 'invoke'
  cli: string
  query: readonly { name: string; about: string }[]
  /** Of the body; a success answers as `answer` has it. */
  body: string
  answer: { type: 'application/json' | 'application/octet-stream'; about: string }
  statuses: readonly (readonly [status: number, about: string])[]
}

export const rawRoutes: readonly RawRoute[] = [
  {
    method: 'POST',
    path: '/v1/components',
    operationId: 'compute.components.send',
    tag: 'functions',
    summary: 'Send the bytes of a component ahead of a deploy',
    about: [
      'The body is the .wasm file itself, up to 64 MiB, with `content-type: application/octet-stream`. It is streamed to the store; two are taken at a time, others wait 10 seconds for their turn.',
      'Then `deploy` with `componentSha256` in place of `component`. Bytes that no deploy names are dropped after 24 hours, and beyond the newest 32 of the organization. A hash is no right: only the organization that sent the bytes, or has a version of them, deploys them.',
    ],
    leastRole: 'member',
    limit: 'deploy',
    cli: 'functions deploy',
    query: [{ name: 'orgId', about: 'The organization, by id or slug' }],
    body: 'The .wasm file',
    answer: {
      type: 'application/json',
      about: '`{ "sha256": "…", "sizeBytes": 12345678 }`',
    },
    statuses: [
      [400, 'No WASM binary, another content type, or too slow'],
      [413, 'More than 64 MiB'],
      [429, 'Too many a minute'],
      [503, 'Two are being sent already: `Retry-After` says when to come back'],
    ],
  },
  {
    method: 'POST',
    path: '/fn/{org}/{name}',
    operationId: 'compute.functions.call',
    tag: 'functions',
    summary: 'Run the function once: the body is stdin, the answer is stdout, both streamed',
    about: [
      'Arguments and variables are empty; `compute.functions.invoke` gives those. A function that was deployed with `public` needs no credential. A caller by cookie must come from our own pages.',
      'The status waits for the end of the function or the first 64 KiB of its stdout. An end before that gives the status, `x-clutch-duration-ms`, and `x-clutch-exit-code` when the function exited; a failure also `x-clutch-reason` and `x-clutch-error`.',
      'After 64 KiB the status is 200 and both come as trailers of a success; a failure breaks the body off. stdin has no limit, and stderr is dropped.',
    ],
    leastRole: 'member, or none for a public function',
    limit: 'invoke',
    cli: 'none: any HTTP client calls it; `ccp functions invoke` collects',
    query: [],
    body: 'stdin, of any length',
    answer: { type: 'application/octet-stream', about: 'stdout' },
    statuses: [
      [
        502,
        'It exited with another code than 0, trapped, ran out of memory or fuel, or its node failed',
      ],
      [503, 'No node has room: `Retry-After` says when to come back'],
      [504, 'It ran longer than its `timeoutMs`'],
    ],
  },
]
