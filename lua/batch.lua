-- batch - batches of requests: what state each is in, who works at which line, and the results, written once a line. Lines wait in one
-- stream a batch; gateways are consumers of one group, and a line that its gateway has not renewed for a lease goes to another.
--
-- Keys behind {ns}:  batch:<id>          hash    the batch; also its output's state (out_*: results, bad_*: failures)
--                    batch:<id>:work     stream  lines to do: line, chunk, at, n (where its text stands), tries, waits
--                    batch:<id>:later    zset    lines to be tried again, by ms
--                    batch:<id>:out :bad string  a bit a line that has its result
--                    batches:<tenant>    zset    ids by age      batches:active  zset  tenants by their last turn
--                    batches:active:<t>  zset    ids of those at work, by last turn    batches:expiry  zset  ids by ms
--                    batches:seq :turn   string  counters       batches:lines :open  string  lines not done, batches not ended
-- States: validating -> in_progress -> completed, expired; validating -> failed, expired; both -> cancelling -> cancelled.
-- A refusal that a client caused is the reply {'NO', http status, code, param, message}.
--
-- deja_batch_create KEYS {ns}:config  ARGV id tenant file endpoint window window_s metadata out_file bad_file authorization ttl_s bytes_max active_max
--     Reply: the batch as JSON.
-- deja_batch_get KEYS {ns}:config  ARGV id tenant
--     Reply: the batch as JSON.
-- deja_batch_cancel KEYS {ns}:config  ARGV id tenant
--     Lines at work end, no other is begun. Reply: the batch as JSON.
-- deja_batch_list KEYS {ns}:config  ARGV tenant after limit
--     Reply: a list as JSON, newest first.
-- deja_batch_take KEYS {ns}:config  ARGV gateway lines lease_ms
--     Something to do, tenants in turn. Reply: queued active item...; an item is {'validate', batch, file, chunks, endpoint} or
--     {'line', batch, tenant, endpoint, authorization, id, line, tries, waits, deliveries, 1 = too late: only say so, text}.
-- deja_batch_queue KEYS {ns}:config  ARGV batch gateway first chunk [at n]...
--     Lines of a batch being validated. Reply: 1; 0 = it is not this gateway's any more.
-- deja_batch_begin KEYS {ns}:config  ARGV batch gateway errors
--     Validation is over: errors "" = begin, else the batch has failed. Reply: 1 or 0.
-- deja_batch_done KEYS {ns}:config  ARGV batch [id line kind text instead]...
--     Results; kind: out, bad, late. A line that has one is left as it is. instead: an error line for when the tenant's files are full.
--     Reply: how many were new.
-- deja_batch_retry KEYS {ns}:config  ARGV batch id counts delay_ms hold_ms
--     The line is tried again later; counts 1 = one of its tries is used up; the whole batch pauses for hold_ms. Reply: 1 or 0.
-- deja_batch_renew KEYS {ns}:config  ARGV gateway lease_ms [batch id]...
--     Keeps lines (id "" = a validation). Reply: how many are still this gateway's.
-- deja_batches KEYS {ns}:config  ARGV none
--     What is at work, of all tenants, for people. Reply: lines.

local filing = {} -- what lua/batch_files.lua offers

do
local GROUP, VISITS_MAX, KEPT_S, CHUNK_BYTES = 'deja', 100, 30 * 86400, 262144
local FIELDS = {'status', 'tenant', 'endpoint', 'window', 'input', 'metadata', 'errors', 'created_at', 'in_progress_at', 'expires_at', 'finalizing_at',
  'completed_at', 'failed_at', 'expired_at', 'cancelling_at', 'cancelled_at', 'total', 'completed', 'failed', 'out_file', 'bad_file', 'out_bytes',
  'bad_bytes', 'out_chunks', 'bad_chunks', 'authorization', 'owner', 'owner_until', 'hold_until', 'ttl_s', 'bytes_max', 'late'}
local ENDED = {completed = true, failed = true, expired = true, cancelled = true}

local function NO(status, code, param, message)
  return {'NO', status, code, param, message}
end
filing.NO = NO

-- cjson writes / as \/, which is right and looks wrong
function filing.text(s)
  return {json = (string.gsub(json_value(s), '\\/', '/'))}
end

local function load(p, id)
  local values, f = redis.call('HMGET', p .. 'batch:' .. id, unpack(FIELDS)), {id = id}
  for i, name in ipairs(FIELDS) do f[name] = values[i] or nil end
  for _, name in ipairs({'total', 'completed', 'failed', 'out_bytes', 'bad_bytes', 'out_chunks', 'bad_chunks', 'expires_at', 'owner_until', 'hold_until'}) do
    f[name] = tonumber(f[name] or 0)
  end
  return f.status and f
end

local function own(p, id, tenant)
  local f = load(p, id)
  if f and f.tenant == tenant then return f end
  return nil, NO(404, 'batch_not_found', 'batch_id', 'there is no batch ' .. clean(id, 64))
end

local function json_of(f)
  local ended = ENDED[f.status]
  local at = function(name) return f[name] and tonumber(f[name]) or cjson.null end
  return json_object({
    'id', f.id, 'object', 'batch', 'endpoint', filing.text(f.endpoint), 'errors', f.errors and {json = f.errors} or cjson.null, 'input_file_id', f.input,
    'completion_window', f.window, 'status', f.status,
    'output_file_id', ended and f.out_bytes > 0 and f.out_file or cjson.null, 'error_file_id', ended and f.bad_bytes > 0 and f.bad_file or cjson.null,
    'created_at', at('created_at'), 'in_progress_at', at('in_progress_at'), 'expires_at', at('expires_at'), 'finalizing_at', at('finalizing_at'),
    'completed_at', at('completed_at'), 'failed_at', at('failed_at'), 'expired_at', at('expired_at'), 'cancelling_at', at('cancelling_at'),
    'cancelled_at', at('cancelled_at'),
    'request_counts', {json = json_object({'total', f.total, 'completed', f.completed, 'failed', f.failed})},
    'metadata', f.metadata and {json = f.metadata} or cjson.null})
end

-- The end of a batch: its files can be seen, what only its work needed is gone.
local function finish(p, f, status, now)
  local key, s = p .. 'batch:' .. f.id, math.floor(now / 1000)
  redis.call('HSET', key, 'status', status, status .. '_at', s)
  if status == 'completed' or status == 'expired' then redis.call('HSET', key, 'finalizing_at', s) end
  redis.call('HDEL', key, 'authorization', 'owner', 'owner_until', 'hold_until')
  redis.call('DECR', p .. 'batches:open')
  if f.in_progress_at then redis.call('DECRBY', p .. 'batches:lines', f.total - f.completed - f.failed) end
  redis.call('DEL', key .. ':work', key .. ':later', key .. ':out', key .. ':bad')
  redis.call('ZREM', p .. 'batches:active:' .. f.tenant, f.id)
  if redis.call('EXISTS', p .. 'batches:active:' .. f.tenant) == 0 then redis.call('ZREM', p .. 'batches:active', f.tenant) end
  redis.call('ZADD', p .. 'batches:expiry', now + KEPT_S * 1000, f.id)
  for _, kind in ipairs({'out', 'bad'}) do
    if f[kind .. '_bytes'] > 0 then
      filing.add(p, {id = f[kind .. '_file'], tenant = f.tenant, name = f.id .. (kind == 'out' and '_output.jsonl' or '_error.jsonl'),
                     purpose = 'batch_output', bytes = f[kind .. '_bytes'], chunks = f[kind .. '_chunks'], ttl_s = tonumber(f.ttl_s), now = now})
    end
  end
  filing.release(p, f.input)
end

local function pending(key)
  return redis.call('EXISTS', key .. ':work') == 1 and tonumber(redis.call('XPENDING', key .. ':work', GROUP)[1]) or 0
end

local function finish_if_over(p, id, now)
  local f = load(p, id)
  if f.status == 'in_progress' and f.completed + f.failed >= f.total then
    finish(p, f, f.late and 'expired' or 'completed', now)
  elseif f.status == 'cancelling' and pending(p .. 'batch:' .. id) == 0 then
    finish(p, f, 'cancelled', now)
  end
end

local function drop(key, id)
  redis.call('XACK', key .. ':work', GROUP, id)
  redis.call('XDEL', key .. ':work', id)
end

-- --- what clients ask
local function create(p, a)
  local id, tenant, now = a[1], a[2], now_ms()
  local file = filing.load(p, a[3], tenant)
  if not file then return NO(404, 'file_not_found', 'input_file_id', 'there is no file ' .. clean(a[3], 64)) end
  if file.purpose ~= 'batch' then
    return NO(400, 'invalid_purpose', 'input_file_id', 'the file has the purpose ' .. file.purpose .. ': expected batch')
  end
  if redis.call('ZCARD', p .. 'batches:active:' .. tenant) >= tonumber(a[13]) then
    return NO(429, 'too_many_batches', '', 'there are ' .. a[13] .. ' batches at work already: wait for one to end')
  end
  redis.call('HSET', p .. 'batch:' .. id, 'status', 'validating', 'tenant', tenant, 'input', a[3], 'endpoint', a[4], 'window', a[5],
    'created_at', math.floor(now / 1000), 'expires_at', math.floor(now / 1000) + tonumber(a[6]), 'out_file', a[8], 'bad_file', a[9],
    'ttl_s', a[11], 'bytes_max', a[12], 'total', 0, 'completed', 0, 'failed', 0)
  if a[7] ~= '' then redis.call('HSET', p .. 'batch:' .. id, 'metadata', a[7]) end
  if a[10] ~= '' then redis.call('HSET', p .. 'batch:' .. id, 'authorization', a[10]) end
  filing.hold(p, a[3])
  redis.call('INCR', p .. 'batches:open')
  redis.call('ZADD', p .. 'batches:' .. tenant, redis.call('INCR', p .. 'batches:seq'), id)
  redis.call('ZADD', p .. 'batches:active:' .. tenant, 0, id)
  redis.call('ZADD', p .. 'batches:active', 'NX', 0, tenant)
  return json_of(load(p, id))
end

local function get(p, a)
  local f, no = own(p, a[1], a[2])
  return f and json_of(f) or no
end

local function cancel(p, a)
  local f, no = own(p, a[1], a[2])
  if not f then return no end
  if f.status == 'cancelling' or f.status == 'cancelled' then return json_of(f) end
  if ENDED[f.status] then
    return NO(409, 'batch_ended', 'batch_id', 'the batch is ' .. f.status .. ' and cannot be cancelled')
  end
  local key, now = p .. 'batch:' .. f.id, now_ms()
  redis.call('HSET', key, 'status', 'cancelling', 'cancelling_at', math.floor(now / 1000))
  redis.call('DEL', key .. ':later')
  finish_if_over(p, f.id, now)
  return json_of(load(p, f.id))
end

local function list(p, a)
  local key, limit = p .. 'batches:' .. a[1], tonumber(a[3])
  local from = a[2] == '' and 0 or redis.call('ZREVRANK', key, a[2])
  if not from then return NO(400, 'invalid_after', 'after', 'there is no batch ' .. clean(a[2], 64)) end
  if a[2] ~= '' then from = from + 1 end
  local ids, out = redis.call('ZRANGE', key, from, from + limit, 'REV'), {}
  for i = 1, math.min(limit, #ids) do
    local f = load(p, ids[i])
    if f then out[#out + 1] = json_of(f) end
  end
  return json_object({'object', 'list', 'data', {json = json_list(out)}, 'first_id', #out > 0 and ids[1] or cjson.null,
                      'last_id', #out > 0 and ids[math.min(limit, #ids)] or cjson.null, 'has_more', #ids > limit})
end

-- --- work
local function line_item(p, f, entry, deliveries, late)
  local e = fields_of(entry)
  local text = redis.call('GETRANGE', p .. 'file:' .. f.input .. ':' .. e.chunk, e.at, e.at + e.n - 1)
  return {'line', f.id, f.tenant, f.endpoint, f.authorization or '', e.id, e.line, e.tries, e.waits, deliveries, late and 1 or 0, text}
end

local function add_line(key, e)
  redis.call('XADD', key .. ':work', '*', 'line', e.line, 'chunk', e.chunk, 'at', e.at, 'n', e.n, 'tries', e.tries, 'waits', e.waits)
end

-- Lines of others whose lease is over, then new ones: k at most, put on out.
local function take_lines(p, f, who, k, lease, out, late)
  local key, had = p .. 'batch:' .. f.id, #out
  for _, entry in ipairs(redis.call('XAUTOCLAIM', key .. ':work', GROUP, who, lease, '0-0', 'COUNT', k)[2]) do
    local n = redis.call('XPENDING', key .. ':work', GROUP, entry[1], entry[1], 1)
    out[#out + 1] = line_item(p, f, entry, n[1] and n[1][4] or 1, late)
  end
  if #out - had >= k then return end
  local new = redis.call('XREADGROUP', 'GROUP', GROUP, who, 'COUNT', k - (#out - had), 'STREAMS', key .. ':work', '>')
  for _, entry in ipairs(new and new[1] and new[1][2] or {}) do
    out[#out + 1] = line_item(p, f, entry, 1, late)
  end
end

local function take_validation(p, f, who, lease, now, out)
  local key = p .. 'batch:' .. f.id
  if now >= f.expires_at * 1000 then return finish(p, f, 'expired', now) end
  if f.owner_until > now then return end
  redis.call('DEL', key .. ':work')
  redis.call('XGROUP', 'CREATE', key .. ':work', GROUP, '0', 'MKSTREAM')
  redis.call('HSET', key, 'owner', who, 'owner_until', now + lease, 'total', 0)
  local file = filing.load(p, f.input, f.tenant, true)
  out[#out + 1] = {'validate', f.id, f.input, file and file.chunks or 0, f.endpoint}
end

-- What cancelled lines have left behind when their gateway died.
local function settle_cancelled(p, f, who, lease, now)
  local key = p .. 'batch:' .. f.id
  if redis.call('EXISTS', key .. ':work') == 1 then
    for _, entry in ipairs(redis.call('XAUTOCLAIM', key .. ':work', GROUP, who, lease, '0-0', 'COUNT', 100)[2]) do drop(key, entry[1]) end
  end
  finish_if_over(p, f.id, now)
end

local function take_batch(p, f, who, k, lease, now, out)
  local key, late = p .. 'batch:' .. f.id, now >= f.expires_at * 1000
  if f.status == 'validating' then return take_validation(p, f, who, lease, now, out) end
  if f.status == 'cancelling' then return settle_cancelled(p, f, who, lease, now) end
  if f.hold_until > now and not late then return end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key .. ':later', '-inf', late and '+inf' or now, 'LIMIT', 0, k)) do
    local e = {}
    e.line, e.chunk, e.at, e.n, e.tries, e.waits = string.match(member, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    redis.call('ZREM', key .. ':later', member)
    add_line(key, e)
  end
  take_lines(p, f, who, k, lease, out, late)
end

local function sweep(p, now)
  filing.sweep(p, now)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. 'batches:expiry', '-inf', now, 'LIMIT', 0, 10)) do
    local f = load(p, id)
    if f then redis.call('ZREM', p .. 'batches:' .. f.tenant, id) end
    redis.call('DEL', p .. 'batch:' .. id)
    redis.call('ZREM', p .. 'batches:expiry', id)
  end
end

-- Visits a tenant's batches in turn. visits.left bounds what one call may cost.
local function take_tenant(p, tenant, a, now, share, out, visits)
  local active = p .. 'batches:active:' .. tenant
  for _, id in ipairs(redis.call('ZRANGE', active, 0, visits.left - 1)) do
    local f, had = load(p, id), #out
    local room = math.min(share, tonumber(a[2]) - had)
    if room <= 0 then return end
    visits.left = visits.left - 1
    redis.call('ZADD', active, 'XX', redis.call('INCR', p .. 'batches:turn'), id)
    if f and not ENDED[f.status] then
      take_batch(p, f, a[1], room, tonumber(a[3]), now, out)
    else
      redis.call('ZREM', active, id)
    end
    share = share - (#out - had)
  end
end

local function count_of(key)
  return tonumber(redis.call('GET', key) or 0)
end

local function take(p, a)
  local now, out, visits = now_ms(), {}, {left = VISITS_MAX}
  sweep(p, now)
  local tenants = redis.call('ZRANGE', p .. 'batches:active', 0, VISITS_MAX - 1)
  for _, tenant in ipairs(tenants) do
    if #out >= tonumber(a[2]) or visits.left <= 0 then break end
    redis.call('ZADD', p .. 'batches:active', 'XX', redis.call('INCR', p .. 'batches:turn'), tenant)
    take_tenant(p, tenant, a, now, math.ceil(tonumber(a[2]) / #tenants), out, visits)
  end
  return {count_of(p .. 'batches:lines'), count_of(p .. 'batches:open'), unpack(out)}
end

local function is_owner(f, who)
  return f and f.status == 'validating' and f.owner == who
end

local function queue(p, a)
  local f, key = load(p, a[1]), p .. 'batch:' .. a[1]
  if not is_owner(f, a[2]) then return 0 end
  local line = tonumber(a[3])
  if line ~= f.total then return 1 end -- added before: only the reply was lost
  for i = 5, #a, 2 do
    add_line(key, {line = line, chunk = a[4], at = a[i], n = a[i + 1], tries = 0, waits = 0})
    line = line + 1
  end
  redis.call('HSET', key, 'total', line)
  return 1
end

local function begin(p, a)
  local f, now = load(p, a[1]), now_ms()
  if not is_owner(f, a[2]) then return 0 end
  if a[3] ~= '' then
    redis.call('HSET', p .. 'batch:' .. f.id, 'errors', a[3], 'total', 0)
    f.total = 0
    finish(p, f, 'failed', now)
  else
    redis.call('HSET', p .. 'batch:' .. f.id, 'status', 'in_progress', 'in_progress_at', math.floor(now / 1000))
    redis.call('INCRBY', p .. 'batches:lines', f.total)
    finish_if_over(p, f.id, now)
  end
  return 1
end

local function append(p, f, kind, text)
  local key, chunks = p .. 'batch:' .. f.id, f[kind .. '_chunks']
  local chunk = p .. 'file:' .. f[kind .. '_file'] .. ':'
  if chunks == 0 or redis.call('STRLEN', chunk .. (chunks - 1)) >= CHUNK_BYTES then chunks = chunks + 1 end
  redis.call('APPEND', chunk .. (chunks - 1), text)
  f[kind .. '_chunks'] = chunks
  redis.call('HSET', key, kind .. '_chunks', chunks)
  redis.call('HINCRBY', key, kind .. '_bytes', #text)
  filing.use(p, f.tenant, #text)
end

local function done(p, a)
  local f, key, new = load(p, a[1]), p .. 'batch:' .. a[1], 0
  if not f or (f.status ~= 'in_progress' and f.status ~= 'cancelling') then return 0 end
  for i = 2, #a, 5 do
    local line, kind, text = a[i + 1], a[i + 2], a[i + 3]
    if redis.call('GETBIT', key .. ':out', line) + redis.call('GETBIT', key .. ':bad', line) == 0 then
      if kind == 'late' then redis.call('HSET', key, 'late', 1) end
      if kind == 'out' and filing.used(p, f.tenant) + #text > tonumber(f.bytes_max) then kind, text = 'bad', a[i + 4] end
      kind = kind == 'out' and 'out' or 'bad'
      redis.call('SETBIT', key .. ':' .. kind, line, 1)
      append(p, f, kind, text)
      redis.call('HINCRBY', key, kind == 'out' and 'completed' or 'failed', 1)
      redis.call('DECR', p .. 'batches:lines')
      new = new + 1
    end
    drop(key, a[i])
  end
  finish_if_over(p, f.id, now_ms())
  return new
end

local function retry(p, a)
  local f, key, now = load(p, a[1]), p .. 'batch:' .. a[1], now_ms()
  if not f or (f.status ~= 'in_progress' and f.status ~= 'cancelling') then return 0 end
  local entry = redis.call('XRANGE', key .. ':work', a[2], a[2])[1]
  if not entry then return 0 end
  local e, counts = fields_of(entry), tonumber(a[3])
  drop(key, a[2])
  if f.status == 'in_progress' then
    local member = table.concat({e.line, e.chunk, e.at, e.n, e.tries + counts, e.waits + 1}, ' ')
    redis.call('ZADD', key .. ':later', now + tonumber(a[4]), member)
    if tonumber(a[5]) > 0 then redis.call('HSET', key, 'hold_until', now + tonumber(a[5])) end
  end
  finish_if_over(p, f.id, now)
  return 1
end

local function renew(p, a)
  local n, now = 0, now_ms()
  for i = 3, #a, 2 do
    local key = p .. 'batch:' .. a[i]
    if a[i + 1] == '' then
      local f = load(p, a[i])
      if is_owner(f, a[1]) then
        redis.call('HSET', key, 'owner_until', now + tonumber(a[2]))
        n = n + 1
      end
    elseif redis.call('EXISTS', key .. ':work') == 1 then
      local held = redis.call('XPENDING', key .. ':work', GROUP, a[i + 1], a[i + 1], 1)[1]
      if held and held[2] == a[1] then
        redis.call('XCLAIM', key .. ':work', GROUP, a[1], 0, a[i + 1], 'JUSTID')
        n = n + 1
      end
    end
  end
  return n
end

local function register(flags, name, callback, n_args)
  redis.register_function({function_name = name, flags = flags, callback = function(keys, args)
    local tag, problem = space_of(keys, name)
    if not tag then return bad(problem) end
    if #args < n_args then return bad(name .. ': expected at least ' .. n_args .. ' arguments') end
    return callback('{' .. tag .. '}:', args)
  end})
end

function filing.register(...)
  register({}, ...)
end

-- writes nothing: answers on a replica and in a full Redis too
function filing.register_reading(...)
  register({'no-writes'}, ...)
end

local LINES_MAX = 200

local function describe(p, f, now)
  local key, done = p .. 'batch:' .. f.id, f.completed + f.failed
  local parts = {f.id, 'tenant ' .. f.tenant, f.status, number_text(done) .. ' of ' .. number_text(f.total) .. ' done'}
  if f.failed > 0 then parts[#parts + 1] = number_text(f.failed) .. ' failed' end
  parts[#parts + 1] = number_text(pending(key)) .. ' at work'
  local later = redis.call('ZCARD', key .. ':later')
  if later > 0 then parts[#parts + 1] = number_text(later) .. ' to be tried again' end
  if f.hold_until > now then parts[#parts + 1] = string.format('pauses for %.1f s', (f.hold_until - now) / 1000) end
  parts[#parts + 1] = 'until ' .. date_text(f.expires_at * 1000)
  return table.concat(parts, ', ')
end

local function batches(p)
  local now = now_ms()
  local out = {'batches at work: ' .. number_text(count_of(p .. 'batches:open')) .. ', lines to do: ' .. number_text(count_of(p .. 'batches:lines'))}
  for _, tenant in ipairs(redis.call('ZRANGE', p .. 'batches:active', 0, LINES_MAX - 1)) do
    for _, id in ipairs(redis.call('ZRANGE', p .. 'batches:active:' .. tenant, 0, LINES_MAX - #out)) do
      local f = load(p, id)
      if f and #out <= LINES_MAX then out[#out + 1] = describe(p, f, now) end
    end
  end
  return out
end

filing.register_reading('deja_batches', batches, 0)
filing.register('deja_batch_create', create, 13)
filing.register_reading('deja_batch_get', get, 2)
filing.register('deja_batch_cancel', cancel, 2)
filing.register_reading('deja_batch_list', list, 3)
filing.register('deja_batch_take', take, 3)
filing.register('deja_batch_queue', queue, 4)
filing.register('deja_batch_begin', begin, 3)
filing.register('deja_batch_done', done, 6)
filing.register('deja_batch_retry', retry, 5)
filing.register('deja_batch_renew', renew, 2)
end
