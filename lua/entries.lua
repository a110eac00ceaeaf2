-- entries - storing, replacing and removing entries.
--
-- deja_put KEYS entry log partition partitions  ARGV id expires_unix_s ttl_s log_items_max source partition_hex [field value]...
--     Replaces the entry. It goes after ttl_s (expires_unix_s), which may be later than its own created + ttl: a stale answer is better
--     than none. partition_hex "" = exact look-ups only (KEYS 3 and 4 untouched). Reply: OK; or, nothing having changed, KEPT:
--     an entry of more trust stands there; DENIED: this answer was called wrong; VOID: it was asked for before a mass removal.
--     Errors: ERR deja_put ... (says which argument is wrong, nothing has changed).
-- deja_vector KEYS entry  ARGV embedder vector
--     Gives an entry or wording its vector, if it is there. Reply: 1 or 0.
-- deja_tokens KEYS entry  ARGV bytes
--     Gives an entry or wording what the verifier needs of its text (field net), if it is there. Reply: 1 or 0.
-- deja_epoch KEYS {ns}  ARGV source log_items_max
--     Tells every gateway to forget what it holds in process and read Redis again. Reply: OK.
-- deja_forget KEYS {ns}  ARGV by [value] [dry]
--     by: entry ID, prompt TEXT, tag TAG, ns NAMESPACE, model MODEL, tenant TENANT, all (or epoch). Removes every entry that fits, on
--     every gateway within a second and for good; dry only counts. Reply: matched N deleted N left N epoch N; what is left is void
--     already and deleted bit by bit.
-- deja_marks KEYS {ns}  ARGV now [aside]
--     What must not be used: the epochs, the denied answers, and how many entries are left to delete. The count of epochs becomes now if
--     it is less (this Redis has lost it). Reply: {name epoch ...} {id:hash until_s ...} left, with aside also {id quarantined|cleared ...}.
-- deja_sweep KEYS {ns}  ARGV max
--     Deletes up to max entries that mass removals have left. Reply: how many are left.

local FORGET_AT_ONCE = 1000
local ENDLESS_S = 2 ^ 39 -- a time to live or an expiry from here on has no end: no EXPIRE, so that no volatile-* policy evicts the key

local RAN_OUT_AT_ONCE = 1000

-- What ran out leaves the list on the way, some at a time: a great many may have on one day.
local function add_until(key, id, expires, now)
  local out = redis.call('ZCOUNT', key, '-inf', '(' .. now)
  if out > 0 then redis.call('ZREMRANGEBYRANK', key, 0, math.min(out, RAN_OUT_AT_ONCE) - 1) end
  redis.call('ZADD', key, expires, id)
  local last = math.floor(tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]))
  if last >= ENDLESS_S then
    redis.call('PERSIST', key)
  else
    redis.call('EXPIREAT', key, last + 60)
  end
end

local function question_key(prefix, q)
  local sha = redis.sha1hex(q or '')
  return prefix .. 'i:q:' .. string.sub(sha, 1, 3), sha
end

-- f: tenant, model, ns, tags of an entry -> the sets that list it
local function index_keys(prefix, f)
  local keys = {prefix .. 'i:a', prefix .. 'i:t:' .. (f.tenant or ''), prefix .. 'i:m:' .. (f.model or ''),
                prefix .. 'i:n:' .. (f.ns or '')}
  for tag in string.gmatch(f.tags or '', '[^,]+') do
    keys[#keys + 1] = prefix .. 'i:g:' .. tag
  end
  return keys
end

local INDEXED = {'tenant', 'model', 'ns', 'tags', 'q', 'part', 'role', 'trust', 'ep', 'created', 'ttl', 'sz', 'pin'}

-- what stands at an entry's key; nil when nothing usable does
local function stored_fields(key)
  if redis.call('TYPE', key).ok ~= 'hash' then return nil end
  local values, f = redis.call('HMGET', key, unpack(INDEXED)), {}
  for i, name in ipairs(INDEXED) do
    f[name] = values[i] or nil
  end
  return f
end

local function unlist(prefix, id, f)
  if f.role ~= 'w' then
    budget_out(prefix, id, f)
    for _, key in ipairs(index_keys(prefix, f)) do
      redis.call('ZREM', key, id)
    end
    local key, sha = question_key(prefix, f.q)
    redis.call('ZREM', key, sha .. ':' .. id)
  end
  if f.part and f.part ~= '' then redis.call('ZREM', prefix .. 'p:' .. f.part, id) end
end

-- Deletes an entry and its places in the indexes. Returns how many there were, and its partition.
local function remove_entry(prefix, id)
  local f = stored_fields(prefix .. 'e:' .. id)
  if f then unlist(prefix, id, f) end
  return redis.call('DEL', prefix .. 'e:' .. id), f and f.part or ''
end

local function epoch_of(prefix, scope)
  return tonumber(redis.call('HGET', prefix .. 'epochs', scope) or 0) or 0
end

local function is_void(prefix, f)
  local ep = tonumber(f.ep) or 0
  if ep >= epoch_of(prefix, 'now') then return false end
  local scopes = {'all', 'tenant:' .. (f.tenant or ''), 'model:' .. (f.model or ''), 'ns:' .. (f.ns or '')}
  for tag in string.gmatch(f.tags or '', '[^,]+') do
    scopes[#scopes + 1] = 'tag:' .. tag
  end
  for _, scope in ipairs(scopes) do
    if epoch_of(prefix, scope) > ep then return true end
  end
  return false
end

-- past its lifetime, and kept only for when no upstream answers
local function is_stale(f, now)
  local created, ttl = tonumber(f.created), tonumber(f.ttl)
  return created and ttl and created + ttl <= now
end

local function is_denied(prefix, id, answer, now)
  local until_s = answer and answer ~= '' and redis.call('HGET', prefix .. 'deny', id .. ':' .. answer)
  return until_s and tonumber(until_s) > now
end

-- Puts a hash of fields into a partition and tells the gateways.
local function place(prefix, id, part, args, from, expires, ttl, now)
  local key = prefix .. 'e:' .. id
  redis.call('DEL', key)
  for i = from, #args, 200 do
    redis.call('HSET', key, unpack(args, i, math.min(i + 199, #args)))
  end
  if tonumber(ttl) < ENDLESS_S then redis.call('EXPIRE', key, ttl) end
  if part ~= '' then
    add_until(prefix .. 'p:' .. part, id, expires, now)
    redis.call('ZADD', prefix .. 'parts', now, part)
    redis.call('ZREMRANGEBYRANK', prefix .. 'parts', 0, -65537)
  end
end

-- What it will take; told as a field of its own.
local function put_sized(args, f, part)
  local bytes = string.format('%.0f', entry_bytes(f, part))
  args[#args + 1], args[#args + 2] = 'sz', bytes
  return bytes
end

local function deja_put(keys, args)
  if #keys ~= 4 then return bad('deja_put needs 4 keys: entry log partition partitions') end
  local id, expires, ttl, items, source, part = args[1], args[2], args[3], args[4], args[5], args[6]
  local prefix = prefix_of(keys[2])
  if #args < 8 or #args % 2 ~= 0 then return bad('deja_put: fields and values must come in pairs') end
  if not is_id(id) then return bad('deja_put: id must be 32 hex digits') end
  if not number(ttl, 1, 2 ^ 52) then return bad('deja_put: ttl_s must be a whole number of seconds from 1 on') end
  if not number(expires, 1, 2 ^ 52) then return bad('deja_put: expires_unix_s must be a whole number') end
  if not number(items, 100, 100000000) then return bad('deja_put: log_items_max must be from 100 to 100000000') end
  if not prefix then return bad('deja_put: the keys must hold the key space in braces') end
  local f, now = {}, now_s()
  for i = 7, #args, 2 do
    f[args[i]] = args[i + 1]
  end
  local old = stored_fields(prefix .. 'e:' .. id)
  if is_void(prefix, f) then return redis.status_reply('VOID') end
  if is_denied(prefix, id, f.ah, now) then return redis.status_reply('DENIED') end
  if old and (tonumber(old.trust) or 0) > (tonumber(f.trust) or 0) and not is_void(prefix, old) and not is_stale(old, now) then
    return redis.status_reply('KEPT')
  end
  if old then unlist(prefix, id, old) end
  f.sz = put_sized(args, f, part)
  place(prefix, id, part, args, 7, expires, ttl, now)
  budget_in(prefix, id, f)
  for _, key in ipairs(index_keys(prefix, f)) do
    add_until(key, id, expires, now)
  end
  local key, sha = question_key(prefix, f.q)
  add_until(key, sha .. ':' .. id, expires, now)
  tell(prefix, items, 'op', 'put', 'id', id, 'part', part, 'src', source)
  budget_enforce(prefix, f.ns or '', 8)
  return redis.status_reply('OK')
end

local function deja_vector(keys, args)
  if #keys ~= 1 or #args ~= 2 then return bad('deja_vector needs 1 key (entry) and 2 arguments (embedder vector)') end
  if redis.call('EXISTS', keys[1]) == 0 then return 0 end
  redis.call('HSET', keys[1], 'emb', args[1], 'vec', args[2])
  return 1
end

local function deja_tokens(keys, args)
  if #keys ~= 1 or #args ~= 1 then return bad('deja_tokens needs 1 key (entry) and 1 argument (bytes)') end
  if redis.call('EXISTS', keys[1]) == 0 then return 0 end
  redis.call('HSET', keys[1], 'net', args[1])
  return 1
end

local function deja_epoch(keys, args)
  if #keys ~= 1 or #args ~= 2 or not prefix_of(keys[1]) then return bad('deja_epoch needs 1 key ({ns}) and 2 arguments (source log_items_max)') end
  if not number(args[2], 100, 100000000) then return bad('deja_epoch: log_items_max must be from 100 to 100000000') end
  tell(prefix_of(keys[1]), args[2], 'op', 'epoch', 'id', '', 'part', '', 'src', args[1])
  return redis.status_reply('OK')
end

-- --- mass removal
local function sweep(prefix, max)
  local left = 0
  for _, name in ipairs(redis.call('SMEMBERS', prefix .. 'sweeps')) do
    local key = prefix .. 'x:' .. name
    while max > 0 do
      local popped = redis.call('ZPOPMIN', key, math.min(max, 100))
      if #popped == 0 then break end
      max = max - #popped / 2
      for i = 1, #popped, 2 do
        local f = stored_fields(prefix .. 'e:' .. popped[i])
        if f and is_void(prefix, f) then remove_entry(prefix, popped[i]) end
      end
    end
    local n = redis.call('ZCARD', key)
    if n == 0 then redis.call('SREM', prefix .. 'sweeps', name) end
    left = left + n
  end
  return left
end

local function report(matched, deleted, left, epoch)
  return {'matched', matched, 'deleted', deleted, 'left', left, 'epoch', epoch}
end

local function forget_one(prefix, id, dry)
  if not is_id(id) then return bad('deja_forget entry: expected the 32 hex digits of x-deja-entry') end
  if dry then return report(redis.call('EXISTS', prefix .. 'e:' .. id), 0, 0, epoch_of(prefix, 'now')) end
  local n, part = remove_entry(prefix, id)
  tell(prefix, nil, 'op', 'del', 'id', id, 'part', part, 'src', '')
  return report(n, n, 0, epoch_of(prefix, 'now'))
end

local function forget_prompt(prefix, text, dry)
  local key, sha = question_key(prefix, text)
  local matched = 0
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, now_s(), '+inf')) do
    if string.sub(member, 1, 40) == sha then
      matched = matched + 1
      if not dry then
        local id = string.sub(member, 42)
        local _, part = remove_entry(prefix, id)
        tell(prefix, nil, 'op', 'del', 'id', id, 'part', part, 'src', '')
      end
    end
  end
  return report(matched, dry and 0 or matched, 0, epoch_of(prefix, 'now'))
end

local SCOPES = {tag = 'i:g:', ns = 'i:n:', namespace = 'i:n:', model = 'i:m:', tenant = 'i:t:', all = 'i:a', epoch = 'i:a'}

local function forget_scope(prefix, by, value, dry)
  local set = prefix .. SCOPES[by] .. value
  local matched = redis.call('ZCOUNT', set, now_s(), '+inf')
  if dry then return report(matched, 0, 0, epoch_of(prefix, 'now')) end
  local epoch = redis.call('HINCRBY', prefix .. 'epochs', 'now', 1)
  local scope = value == '' and SCOPES[by] == 'i:a' and 'all' or (by == 'namespace' and 'ns' or by) .. ':' .. value
  redis.call('HSET', prefix .. 'epochs', scope, epoch)
  if redis.call('EXISTS', set) == 1 then
    redis.call('RENAME', set, prefix .. 'x:' .. epoch)
    redis.call('SADD', prefix .. 'sweeps', epoch)
  end
  local left = sweep(prefix, FORGET_AT_ONCE)
  tell(prefix, nil, 'op', 'forget', 'scope', scope, 'epoch', epoch, 'left', left)
  return report(matched, math.max(matched - left, 0), left, epoch)
end

local function deja_forget(keys, args)
  local prefix = prefix_of(keys[1])
  if #keys ~= 1 or not prefix then return bad('deja_forget needs 1 key that names the key space, as in {deja}') end
  local by, value, last = args[1] or '', args[2] or '', args[3]
  local all = by == 'all' or by == 'epoch'
  if all then value, last = '', args[2] end
  if last and last ~= 'dry' then return bad('deja_forget: the last word may only be dry, not ' .. last) end
  local dry = last == 'dry'
  if #args > 3 or (all and #args > 2) then return bad('deja_forget: too many arguments; quote a text with blanks') end
  if not all and #args < 2 then return bad('deja_forget: say what, as in: deja_forget 1 {deja} tag faq, or ... all') end
  if by == 'entry' then return forget_one(prefix, value, dry) end
  if by == 'prompt' then return forget_prompt(prefix, value, dry) end
  if not SCOPES[by] then
    return bad('deja_forget: by "' .. by .. '" is unknown; it may be entry, prompt, tag, ns, model, tenant, all')
  end
  return forget_scope(prefix, by, value, dry)
end

local DENIED_MAX = 10000
local ASIDE_FLAT -- (prefix): quarantine.lua

local function denied_now(prefix, now)
  local all, out = redis.call('HGETALL', prefix .. 'deny'), {}
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) <= now or #out >= 2 * DENIED_MAX then
      redis.call('HDEL', prefix .. 'deny', all[i])
    else
      out[#out + 1], out[#out + 2] = all[i], all[i + 1]
    end
  end
  return out
end

local function deja_marks(keys, args)
  local prefix, known = prefix_of(keys[1]), number(args[1], 0, 2 ^ 52)
  if #keys ~= 1 or not prefix then return bad('deja_marks needs 1 key that names the key space, as in {deja}') end
  if not known then return bad('deja_marks: now must be a whole number') end
  if epoch_of(prefix, 'now') < known then redis.call('HSET', prefix .. 'epochs', 'now', known) end
  local left = 0
  for _, name in ipairs(redis.call('SMEMBERS', prefix .. 'sweeps')) do
    left = left + redis.call('ZCARD', prefix .. 'x:' .. name)
  end
  return {redis.call('HGETALL', prefix .. 'epochs'), denied_now(prefix, now_s()), left, args[2] == 'aside' and ASIDE_FLAT(prefix) or nil}
end

local function deja_sweep(keys, args)
  local prefix, max = prefix_of(keys[1]), number(args[1], 1, 100000)
  if #keys ~= 1 or not prefix then return bad('deja_sweep needs 1 key that names the key space, as in {deja}') end
  if not max then return bad('deja_sweep: max must be from 1 to 100000') end
  return sweep(prefix, max)
end

redis.register_function('deja_put', deja_put)
redis.register_function('deja_vector', deja_vector)
redis.register_function('deja_tokens', deja_tokens)
redis.register_function('deja_epoch', deja_epoch)
redis.register_function('deja_forget', deja_forget)
redis.register_function('deja_marks', deja_marks)
redis.register_function('deja_sweep', deja_sweep)
