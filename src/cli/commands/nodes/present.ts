// How nodes read to people: the words of the axes, the tier, the capacity.
import type { z } from 'zod'
import type { nodeRecord } from '#api/nodes.ts'
import type { Cli } from '#cli/cli.ts'
import { cores } from '#cli/output.ts'
import type { Output } from '#cli/output.ts'

export type NodeRecord = z.infer<typeof nodeRecord>

export const tierText = (node: NodeRecord): string =>
  node.trust_tier.toUpperCase() +
  (node.pending_trust_tier === null
    ? ''
    : ` → ${node.pending_trust_tier.toUpperCase()} at its next REGISTER`)

export function capacityText(node: NodeRecord): string {
  if (node.manifest === null) return 'nothing reported yet'
  const { cpu_millis, mem_mb, runtimes } = node.manifest
  return `${cores(cpu_millis)} · ${mem_mb} MB · ${runtimes.join(', ') || 'no runtimes'}`
}

/** What holds the guests of the node: concepts/trust.md says what each layer does. */
export function jailText({ jail_missing: missing }: NodeRecord): string {
  if (missing === null) return 'nothing reported yet'
  return missing.length === 0 ? 'whole' : `without ${missing.join(', ')}`
}

export function usedText(node: NodeRecord): string {
  return `${cores(node.used.cpu_millis)} · ${node.used.mem_mb} MB`
}

/** 'schedulable', or the bucket; the reason in words stands in `get`. */
export function stateText(out: Output, node: NodeRecord): string {
  const marks = [
    ...(node.draining ? ['draining'] : []),
    ...(node.cordoned ? ['cordoned'] : []),
    ...(node.maintenance ? ['maintenance'] : []),
  ]
  const state = [node.provision_state, node.connectivity, ...marks].join(' · ')
  return out.style(node.schedulable ? 'green' : 'yellow', state)
}

/** The token with the ready command line: printed by the answer that has it, and never again. */
export function printToken(
  cli: Cli,
  made: { node: NodeRecord; token: string | null; notice?: string | undefined; server: string },
): void {
  const { node, token, server } = made
  const { out } = cli
  if (token === null) {
    out.note(made.notice ?? 'The token was shown before and is not kept.')
    out.note(`  → For a new one: ccp nodes revoke-identity ${node.node_id}`)
    return
  }
  out.line()
  out.line(out.style('bold', 'The token is shown this once; only its hash is kept.'))
  out.line('Start the agent on the machine with it:')
  out.line()
  const community = node.trust_tier === 'community' ? ' --community' : ''
  out.line(
    `  CLUTCH_TOKEN=${token} \\\n  clutch-noded --server ${server} --node ${node.node_id} --runtimes wasm${community}`,
  )
  out.line()
  out.line('or with the token as an argument, which `ps` shows to other users of that machine:')
  out.line()
  const lines = [
    '  clutch-noded',
    `    --server ${server}`,
    `    --node ${node.node_id}`,
    `    --token ${token}`,
    `    --runtimes wasm${community}`,
  ]
  out.line(lines.join(' \\\n'))
}

/** Where nodes dial: known for a platform on this machine, else port 443 of the API's host (§7, "Ports"). */
export async function serverOf(cli: Cli, flag: string | undefined): Promise<string> {
  if (flag !== undefined) return flag
  const { sessions, url } = await cli.target()
  return sessions ?? guessServer(url)
}

function guessServer(url: string): string {
  const { hostname } = new URL(url)
  const local = ['127.0.0.1', 'localhost', '[::1]'].includes(hostname)
  return `${hostname}:${local ? 7443 : 443}`
}
