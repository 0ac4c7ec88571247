// The script of the engine's own pages. A link's secret stands after #, which no browser sends by itself.
const message = document.querySelector('#message')

function say(text, wrong) {
  message.textContent = text
  message.classList.toggle('wrong', wrong === true)
}

async function call(method, path, body) {
  const response = await fetch(path, {
    method,
    credentials: 'same-origin',
    ...(body && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  })
  const answer = await response.json().catch(() => ({}))
  if (response.ok) return answer
  const why = answer.message ?? answer.error_description ?? `the engine answered ${response.status}`
  const next = answer.data?.next ? ` ${answer.data.next}.` : ''
  throw Object.assign(new Error(`${why}.${next}`), { status: response.status })
}

// The form did its work and would only be refused again.
function finished(id, text) {
  document.querySelector(`#${id}`).hidden = true
  const after = document.querySelector('#next')
  if (after) after.hidden = false
  say(text)
}

function onSubmit(id, act) {
  const form = document.querySelector(`#${id}`)
  form?.addEventListener('submit', (event) => {
    event.preventDefault()
    const fields = Object.fromEntries(new FormData(form))
    form.inert = true
    say('…')
    act(fields, event.submitter?.value)
      .catch((error) => say(error.message, true))
      .finally(() => (form.inert = false))
  })
}

// Only a path of this site: a link must not send people elsewhere after they signed in.
function next() {
  const wanted = new URLSearchParams(location.search).get('next') ?? '/'
  const url = new URL(wanted, location.origin)
  return url.origin === location.origin ? url.pathname + url.search : '/'
}

onSubmit('sign-in', async ({ email, password }) => {
  await call('POST', '/api/auth/sign-in/email', { email, password })
  location.assign(next())
})

for (const id of ['setup', 'invitation'])
  onSubmit(id, async (fields) => {
    const token = location.hash.slice(1)
    await call('POST', `/${id}`, { token, ...fields })
    history.replaceState(null, '', location.pathname)
    finished(id, 'The account is made and you are signed in.')
  })

const code = document.querySelector('#device input[name=code]')
if (code) code.value = new URLSearchParams(location.search).get('user_code') ?? ''
onSubmit('device', async (fields, choice) => {
  const userCode = fields.code.trim()
  const session = await call('GET', '/api/auth/get-session')
  if (!session?.user) {
    const back = `/device?user_code=${encodeURIComponent(userCode)}`
    return location.assign(`/sign-in?next=${encodeURIComponent(back)}`)
  }
  await call('GET', `/api/auth/device?user_code=${encodeURIComponent(userCode)}`)
  await call('POST', `/api/auth/device/${choice === 'deny' ? 'deny' : 'approve'}`, { userCode })
  finished('device', choice === 'deny' ? 'The terminal was refused.' : 'The terminal is signed in.')
})

onSubmit('sign-out', async () => {
  await call('POST', '/api/auth/sign-out', {})
  location.assign('/')
})

async function showWho(who) {
  const session = await call('GET', '/api/auth/get-session')
  if (!session?.user) return
  who.textContent = session.user.name
  document.querySelector('#origin').textContent = location.origin
  for (const part of document.querySelectorAll('[data-when]'))
    part.hidden = part.dataset.when === 'out'
}

const who = document.querySelector('#who')
if (who) showWho(who).catch((error) => say(error.message, true))
