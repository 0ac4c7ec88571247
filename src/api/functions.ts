// compute.functions.*: WASM, submitted inline and collected (seed 000, FN-…).
import { z } from 'zod'
import { base, instant, orgInput, pageInput } from '#api/base.ts'
import { idCursorField, nameField, rangeField, regionField } from '#api/fields.ts'
import { REASONS } from '#core/function/answer.ts'
import {
  ARG_LENGTH_MAX,
  ARGS_MAX,
  CPU_MILLIS,
  ENV_MAX,
  FUEL_MAX,
  MEM_MB,
  TIMEOUT_MS,
} from '#core/function/limits.ts'
import { TRUST_TIERS } from '#core/node/node.ts'

export const functionRecord = z.object({
  id: z.string(),
  name: z.string(),
  version: z.number(),
  sha256: z.string(),
  size_bytes: z.number(),
  cpu_millis: z.number(),
  mem_mb: z.number(),
  allow_community: z.boolean(),
  region: z.string().nullable(),
  timeout_ms: z.number(),
  /** Null: as much as the time allows. */
  fuel_max: z.number().nullable(),
  idempotent: z.boolean(),
  public: z.boolean(),
  created_at: instant,
  updated_at: instant,
})

export const versionRecord = z.object({
  version: z.number(),
  current: z.boolean(),
  sha256: z.string(),
  size_bytes: z.number(),
  cpu_millis: z.number(),
  mem_mb: z.number(),
  allow_community: z.boolean(),
  region: z.string().nullable(),
  timeout_ms: z.number(),
  fuel_max: z.number().nullable(),
  created_at: instant,
  created_by: z.string(),
})

const nameInput = orgInput.extend({ name: nameField('name') })

const COMPONENT_RULE =
  'component is required, the base64 of a .wasm file, or componentSha256 in its place: one of both'
const SHA256_RULE = 'componentSha256 must be 64 lower-case hexadecimal digits'

export const deploy = base
  .meta({
    role: 'member',
    tx: 'none',
    idempotency: 'replay',
    cli: 'functions deploy',
    limit: 'deploy',
  })
  .route({
    method: 'POST',
    path: '/v1/functions',
    tags: ['functions'],
    summary: 'Check, prepare and store a component under a name',
  })
  .input(
    nameInput
      .extend({
        /** The bytes inline, up to 8 MiB: standard base64. */
        component: z.string({ error: COMPONENT_RULE }).optional(),
        /** Of bytes sent ahead to `POST /v1/components`, or of a version that the organization has. */
        componentSha256: z
          .string({ error: SHA256_RULE })
          .regex(/^[0-9a-f]{64}$/, SHA256_RULE)
          .optional(),
        cpuMillis: rangeField('cpuMillis', CPU_MILLIS).default(CPU_MILLIS.default),
        memMb: rangeField('memMb', MEM_MB).default(MEM_MB.default),
        allowCommunity: z.boolean({ error: 'allowCommunity must be true or false' }).default(false),
        region: regionField.optional(),
        timeoutMs: rangeField('timeoutMs', TIMEOUT_MS).default(TIMEOUT_MS.default),
        /** Units of fuel that one invocation may burn (D44). */
        fuelMax: rangeField('fuelMax', FUEL_MAX).optional(),
        idempotent: z.boolean().default(false),
        public: z.boolean().default(false),
      })
      .refine(
        ({ component, componentSha256 }) =>
          (component === undefined) !== (componentSha256 === undefined),
        {
          path: ['component'],
          error: COMPONENT_RULE,
          // Beside what is wrong with other fields: all is told at once (FN-1).
          when: ({ value }) => typeof value === 'object' && value !== null,
        },
      ),
  )
  .output(z.object({ function: functionRecord }))

export const list = base
  .meta({ role: 'guest', tx: 'one', cli: 'functions list' })
  .route({
    method: 'GET',
    path: '/v1/functions',
    tags: ['functions'],
    summary: "The org's functions",
  })
  .input(orgInput.extend(pageInput(1_000, 1_000).shape))
  .output(z.object({ functions: z.array(functionRecord), next_cursor: z.string().nullable() }))

export const get = base
  .meta({ role: 'guest', tx: 'one', cli: 'functions get' })
  .route({
    method: 'GET',
    path: '/v1/functions/{name}',
    tags: ['functions'],
    summary: 'One function with its versions',
  })
  .input(nameInput)
  .output(z.object({ function: functionRecord, versions: z.array(versionRecord) }))

export const remove = base
  .meta({ role: 'member', tx: 'one', cli: 'functions delete' })
  .route({
    method: 'DELETE',
    path: '/v1/functions/{name}',
    tags: ['functions'],
    summary: 'Delete a function and its versions; running invocations end undisturbed',
  })
  .input(nameInput)
  .output(z.object({ function: functionRecord }))

const VERSION_RULE = 'version must be a whole number from 1'

export const rollback = base
  .meta({ role: 'member', tx: 'one', cli: 'functions rollback' })
  .route({
    method: 'POST',
    path: '/v1/functions/{name}/rollback',
    tags: ['functions'],
    summary: 'Make an earlier version current again',
  })
  .input(
    nameInput.extend({
      version: z.number({ error: VERSION_RULE }).int(VERSION_RULE).min(1, VERSION_RULE).optional(),
    }),
  )
  .output(z.object({ function: functionRecord }))

export const invoke = base
  .meta({
    role: 'member',
    tx: 'none',
    idempotency: 'at-most-once',
    cli: 'functions invoke',
    limit: 'invoke',
    rawText: ['args', 'env', 'stdin', 'stdinBase64'],
  })
  .route({
    method: 'POST',
    path: '/v1/functions/{name}/invoke',
    tags: ['functions'],
    summary: 'Run the function once and collect its output',
  })
  .input(
    nameInput.extend({
      args: z.array(z.string().max(ARG_LENGTH_MAX)).max(ARGS_MAX).default([]),
      env: z
        .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), z.string().max(ARG_LENGTH_MAX))
        .default({})
        .refine(
          (env) => Object.keys(env).length <= ENV_MAX,
          `env has at most ${ENV_MAX} variables`,
        ),
      stdin: z.string().optional(),
      stdinBase64: z.string().optional(),
      timeoutMs: rangeField('timeoutMs', TIMEOUT_MS).optional(),
    }),
  )
  .output(
    z.object({
      ok: z.boolean(),
      exitCode: z.number().nullable(),
      durationMs: z.number(),
      error: z.string().optional(),
      reason: z.enum(REASONS).optional(),
      /** UTF-8 text; what is no UTF-8 shows as U+FFFD here and is exact in stdoutBase64. */
      stdout: z.string(),
      stderr: z.string(),
      stdoutBase64: z.string().optional(),
      stderrBase64: z.string().optional(),
      stdoutTruncated: z.boolean(),
      stderrTruncated: z.boolean(),
      fuelUsed: z.number().nullable(),
      memPeakMb: z.number().nullable(),
      node_id: z.string().nullable(),
      trust_tier: z.enum(TRUST_TIERS).nullable(),
    }),
  )

export const invocations = base
  .meta({ role: 'guest', tx: 'one', cli: 'functions invocations' })
  .route({
    method: 'GET',
    path: '/v1/functions/{name}/invocations',
    tags: ['functions'],
    summary: 'The history of seven days, newest first',
  })
  .input(nameInput.extend(pageInput(500, 50).shape).extend({ cursor: idCursorField('inv') }))
  .output(
    z.object({
      invocations: z.array(
        z.object({
          id: z.string(),
          version: z.number(),
          node_id: z.string().nullable(),
          trust_tier: z.string().nullable(),
          started_at: instant,
          duration_ms: z.number(),
          ok: z.boolean(),
          exit_code: z.number().nullable(),
          reason: z.string().nullable(),
          error: z.string().nullable(),
          /** Null when no guest ran, or its node did not count. */
          fuel_used: z.number().nullable(),
        }),
      ),
      next_cursor: z.string().nullable(),
    }),
  )
