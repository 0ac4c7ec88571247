// compute.nodes.*: hardware that dials out (seed 000, ND-…).
import { z } from 'zod'
import { base, instant, orgInput, pageInput } from '#api/base.ts'
import {
  idField,
  labelField,
  nameField,
  regionField,
  trustTierField,
  versionField,
} from '#api/fields.ts'
import { LABEL_MAX, NODES_PAGE_MAX } from '#core/node/limits.ts'
import { CONNECTIVITIES, PROVISION_STATES, ROLES, TRUSTS, TRUST_TIERS } from '#core/node/node.ts'

export const nodeRecord = z.object({
  id: z.string(),
  node_id: z.string(),
  owner_org_id: z.string(),
  site_id: z.string(),
  pool_id: z.string(),
  label: z.string().nullable(),
  contributor: z.string().nullable(),
  region: z.string().nullable(),
  role: z.enum(ROLES),
  trust: z.enum(TRUSTS),
  /** The tier that placement uses: the stricter of the record and the agent's flag (D39). */
  trust_tier: z.enum(TRUST_TIERS),
  /** Takes effect at the node's next REGISTER. */
  pending_trust_tier: z.enum(TRUST_TIERS).nullable(),
  /** Null until the node registered. */
  manifest: z
    .object({ cpu_millis: z.number(), mem_mb: z.number(), runtimes: z.array(z.string()) })
    .nullable(),
  used: z.object({ cpu_millis: z.number(), mem_mb: z.number() }),
  provision_state: z.enum(PROVISION_STATES),
  /** Why acceptance failed; null otherwise. */
  failure: z.string().nullable(),
  maintenance: z.boolean(),
  cordoned: z.boolean(),
  connectivity: z.enum(CONNECTIVITIES),
  draining: z.boolean(),
  no_schedule_reasons: z.array(z.string()),
  /** Whether it may receive work now; if not, the capacity bucket and the reason in words. */
  schedulable: z.boolean(),
  unschedulable: z.object({ bucket: z.string(), message: z.string() }).nullable(),
  generation: z.number(),
  observed_generation: z.number(),
  identity_generation: z.number(),
  version: z.number(),
  agent_version: z.string().nullable(),
  /** Layers that hold guests and that its machine or user does not give; null: no agent has said. */
  jail_missing: z.array(z.string()).nullable(),
  session: z
    .object({
      epoch: z.number(),
      gateway_id: z.string(),
      transport: z.enum(['quic', 'tls']),
      connected_at: instant,
      disconnected_at: instant.nullable(),
    })
    .nullable(),
  /** Advisory: liveness belongs to the engine that holds the session. */
  last_seen_at: instant.nullable(),
  created_at: instant,
})

const nodeInput = orgInput.extend({ id: idField })

export const enroll = base
  .meta({ role: 'admin', tx: 'one', idempotency: 'once', cli: 'nodes enroll', limit: 'enroll' })
  .route({
    method: 'POST',
    path: '/v1/nodes',
    successStatus: 200,
    tags: ['nodes'],
    summary: 'Make a node record and its one-time token',
  })
  .input(
    orgInput
      .extend({
        nodeId: nameField('nodeId'),
        label: labelField.optional(),
        region: regionField.optional(),
        trustTier: trustTierField,
        contributor: z.string().min(1).max(LABEL_MAX).optional(),
      })
      .refine((input) => input.contributor === undefined || input.trustTier === 'community', {
        path: ['contributor'],
        message: "contributor is accepted with trustTier 'community' only",
      }),
  )
  .output(
    z.object({ node: nodeRecord, token: z.string().nullable(), notice: z.string().optional() }),
  )

export const list = base
  .meta({ role: 'guest', tx: 'one', operator: true, cli: 'nodes list' })
  .route({
    method: 'GET',
    path: '/v1/nodes',
    tags: ['nodes'],
    summary: "The org's nodes that are not revoked",
  })
  .input(orgInput.extend(pageInput(NODES_PAGE_MAX, NODES_PAGE_MAX).shape))
  .output(z.object({ nodes: z.array(nodeRecord), next_cursor: z.string().nullable() }))

export const get = base
  .meta({ role: 'guest', tx: 'one', operator: true, cli: 'nodes get' })
  .route({
    method: 'GET',
    path: '/v1/nodes/{id}',
    tags: ['nodes'],
    summary: 'One node with its work; id is the record id or the node id',
  })
  .input(nodeInput)
  .output(
    z.object({
      node: nodeRecord,
      work: z.array(
        z.object({
          function: z.string(),
          version: z.number(),
          cpu_millis: z.number(),
          mem_mb: z.number(),
        }),
      ),
      commands: z.array(
        z.object({
          id: z.string(),
          kind: z.string(),
          state: z.string(),
          output: z.string().nullable(),
          created_at: instant,
        }),
      ),
    }),
  )

export const setTrustTier = base
  .meta({ role: 'admin', tx: 'one', cli: 'nodes set-tier' })
  .route({
    method: 'POST',
    path: '/v1/nodes/{id}/set-trust-tier',
    tags: ['nodes'],
    summary: "Change the tier at the node's next REGISTER; evicts nothing",
  })
  .input(nodeInput.extend({ trustTier: trustTierField, version: versionField }))
  .output(z.object({ node: nodeRecord }))

export const setDraining = base
  .meta({ role: 'admin', tx: 'one', cli: 'nodes set-draining' })
  .route({
    method: 'POST',
    path: '/v1/nodes/{id}/set-draining',
    tags: ['nodes'],
    summary: 'Stop or resume new work; what runs there goes on',
  })
  .input(
    nodeInput.extend({
      draining: z.boolean({ error: 'draining must be true or false' }),
      version: versionField,
    }),
  )
  .output(z.object({ node: nodeRecord }))

export const revoke = base
  .meta({ role: 'admin', tx: 'one', cli: 'nodes revoke' })
  .route({
    method: 'POST',
    path: '/v1/nodes/{id}/revoke',
    tags: ['nodes'],
    summary: 'Remove a node; its credential never registers again',
  })
  .input(nodeInput.extend({ version: versionField }))
  .output(z.object({ node: nodeRecord }))

export const revokeIdentity = base
  .meta({ role: 'admin', tx: 'one', idempotency: 'once', cli: 'nodes revoke-identity' })
  .route({
    method: 'POST',
    path: '/v1/nodes/{id}/revoke-identity',
    tags: ['nodes'],
    summary: "End the node's key and certificates; answers a new token once",
  })
  .input(nodeInput.extend({ version: versionField }))
  .output(
    z.object({ node: nodeRecord, token: z.string().nullable(), notice: z.string().optional() }),
  )
