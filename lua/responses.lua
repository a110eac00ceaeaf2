-- responses - answers of the Responses API that stay, so that a later request can go on from one. Each keeps what was asked in it, what was
-- answered and the one before; a conversation is the chain of them. What a tenant keeps is bounded: the one used longest ago makes room.
--
-- Keys behind {ns}:  response:<id>             hash  tenant, prev, input (JSON array), response (JSON object)
--                    responses:<tenant>        zset  ids by the ms they end at
--                    responses_bytes:<tenant>  hash  id -> bytes; all = the sum
--
-- deja_response_put KEYS {ns}:config  ARGV id tenant prev input response ttl_s bytes_max
--     Reply: 1; 0 = it is larger than all a tenant may keep.
-- deja_response_get KEYS {ns}:config  ARGV id tenant
--     Reply: the response as JSON.
-- deja_response_delete KEYS {ns}:config  ARGV id tenant
--     Reply: what there is to say as JSON.
-- deja_response_chain KEYS {ns}:config  ARGV id tenant bytes_max
--     The conversation that ends with it. Reply: input response input response ..., oldest first.
-- deja_response_renew KEYS {ns}:config  ARGV id tenant ttl_s
--     Each of that conversation is kept for ttl_s again. Reply: how many.

do
local NO = filing.NO
local LINKS_MAX, OVERHEAD, SWEPT_MAX = 1000, 500, 1000

local function index_of(p, tenant)
  return p .. 'responses:' .. tenant
end

local function bytes_of(p, tenant)
  return p .. 'responses_bytes:' .. tenant
end

local function drop(p, tenant, id)
  local sizes = bytes_of(p, tenant)
  local bytes = tonumber(redis.call('HGET', sizes, id) or 0)
  redis.call('UNLINK', p .. 'response:' .. id)
  redis.call('ZREM', index_of(p, tenant), id)
  redis.call('HDEL', sizes, id)
  if redis.call('HINCRBY', sizes, 'all', -bytes) <= 0 then redis.call('HDEL', sizes, 'all') end
end

local function keep(p, tenant, id, ttl_s, now)
  redis.call('EXPIRE', p .. 'response:' .. id, ttl_s)
  redis.call('ZADD', index_of(p, tenant), now + ttl_s * 1000, id)
  redis.call('EXPIRE', index_of(p, tenant), ttl_s)
  redis.call('EXPIRE', bytes_of(p, tenant), ttl_s)
end

local function put(p, a)
  local id, tenant, ttl_s, most, now = a[1], a[2], tonumber(a[6]), tonumber(a[7]), now_ms()
  local index, sizes, bytes, dropped = index_of(p, tenant), bytes_of(p, tenant), #a[4] + #a[5] + OVERHEAD, 0
  if bytes > most then return 0 end
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, SWEPT_MAX)) do drop(p, tenant, old) end
  while tonumber(redis.call('HGET', sizes, 'all') or 0) + bytes > most and dropped < SWEPT_MAX do
    local oldest = redis.call('ZRANGE', index, 0, 0)[1]
    if not oldest then break end
    drop(p, tenant, oldest)
    dropped = dropped + 1
  end
  if tonumber(redis.call('HGET', sizes, 'all') or 0) + bytes > most then return 0 end
  redis.call('HSET', p .. 'response:' .. id, 'tenant', tenant, 'prev', a[3], 'input', a[4], 'response', a[5])
  redis.call('HSET', sizes, id, bytes)
  redis.call('HINCRBY', sizes, 'all', bytes)
  keep(p, tenant, id, ttl_s, now)
  return 1
end

local function own(p, id, tenant)
  local v = redis.call('HMGET', p .. 'response:' .. id, 'tenant', 'prev', 'input', 'response')
  return v[1] == tenant and v[3] and v[4] and {prev = v[2] or '', input = v[3], response = v[4]} or nil
end

local function none(id)
  return NO(404, 'response_not_found', 'response_id', 'there is no response ' .. clean(id, 64) .. ' (none was kept, or it has been deleted or has ended)')
end

local function get(p, a)
  local r = own(p, a[1], a[2])
  return r and r.response or none(a[1])
end

local function delete(p, a)
  if not own(p, a[1], a[2]) then return none(a[1]) end
  drop(p, a[2], a[1])
  return json_object({'id', a[1], 'object', 'response', 'deleted', true})
end

local function lost(first, id)
  local what = id == first and 'there is no response ' .. clean(id, 64) or
    'the response ' .. clean(first, 64) .. ' goes on from ' .. clean(id, 64) .. ', which is not there'
  return NO(400, 'previous_response_not_found', 'previous_response_id', 'previous_response_id: ' .. what ..
    ' (none was kept, or it has been deleted or has ended): send the whole conversation in input')
end

local function chain(p, a)
  local id, links, bytes = a[1], {}, 0
  while id ~= '' do
    local r = own(p, id, a[2])
    if not r then return lost(a[1], id) end
    bytes = bytes + #r.input + #r.response
    if bytes > tonumber(a[3]) or #links == LINKS_MAX then
      return NO(400, 'context_length_exceeded', 'previous_response_id', 'previous_response_id: the conversation has over ' ..
        (#links == LINKS_MAX and LINKS_MAX .. ' answers' or number_text(tonumber(a[3])) .. ' bytes') .. ': begin a new one')
    end
    links[#links + 1] = r
    id = r.prev
  end
  local out = {}
  for i = #links, 1, -1 do
    out[#out + 1] = links[i].input
    out[#out + 1] = links[i].response
  end
  return out
end

local function renew(p, a)
  local id, n, now = a[1], 0, now_ms()
  while n < LINKS_MAX do
    local v = redis.call('HMGET', p .. 'response:' .. id, 'tenant', 'prev')
    if v[1] ~= a[2] then break end
    keep(p, a[2], id, tonumber(a[3]), now)
    n = n + 1
    id = v[2] or ''
  end
  return n
end

filing.register('deja_response_put', put, 7)
filing.register_reading('deja_response_get', get, 2)
filing.register('deja_response_delete', delete, 2)
filing.register_reading('deja_response_chain', chain, 3)
filing.register('deja_response_renew', renew, 3)
end
