-- batch_files - files of tenants, in chunks: what batches read and write. A file's bytes count against its tenant from the first to its
-- removal. A file that a batch at work reads can be deleted: it is gone from every list at once, and its bytes when the batch has ended.
--
-- Keys behind {ns}:  file:<id>      hash    tenant name purpose bytes chunks created_at expires_at users deleted
--                    file:<id>:<n>  string  chunk n from 0; of a batch's input no line crosses two
--                    files:<tenant> zset    ids by age      files:used  hash  tenant -> bytes     files:expiry  zset  ids by ms
--
-- deja_file_add KEYS {ns}:config  ARGV id tenant name purpose bytes chunks ttl_s bytes_max files_max
--     Its chunks are there already. ttl_s 0 = for good. Reply: the file as JSON.
-- deja_file_get KEYS {ns}:config  ARGV id tenant
--     Reply: the file as JSON, and its number of chunks.
-- deja_file_list KEYS {ns}:config  ARGV tenant purpose after limit order
--     Reply: a list as JSON; order asc or desc by age.
-- deja_file_delete KEYS {ns}:config  ARGV id tenant
--     Reply: what there is to say as JSON.
-- deja_file_room KEYS {ns}:config  ARGV tenant bytes bytes_max
--     Reply: 1, or the refusal when so many bytes more do not fit.

do
local NO = filing.NO

function filing.load(p, id, tenant, deleted_too)
  local v = redis.call('HMGET', p .. 'file:' .. id, 'tenant', 'name', 'purpose', 'bytes', 'chunks', 'created_at', 'expires_at', 'users', 'deleted')
  if not v[1] or v[1] ~= tenant or (v[9] and not deleted_too) then return nil end
  return {id = id, tenant = v[1], name = v[2], purpose = v[3], bytes = tonumber(v[4]), chunks = tonumber(v[5]), created_at = tonumber(v[6]),
          expires_at = v[7] and tonumber(v[7]), users = tonumber(v[8] or 0)}
end

local function json_of(f)
  return json_object({'id', f.id, 'object', 'file', 'bytes', f.bytes, 'created_at', f.created_at, 'expires_at', f.expires_at or cjson.null,
                      'filename', filing.text(f.name), 'purpose', f.purpose, 'status', 'processed', 'status_details', cjson.null})
end

function filing.used(p, tenant)
  return tonumber(redis.call('HGET', p .. 'files:used', tenant) or 0)
end

function filing.use(p, tenant, bytes)
  if redis.call('HINCRBY', p .. 'files:used', tenant, bytes) <= 0 then redis.call('HDEL', p .. 'files:used', tenant) end
end

-- f: id tenant name purpose bytes chunks ttl_s now. Its bytes are counted by the caller.
function filing.add(p, f)
  local s = math.floor(f.now / 1000)
  redis.call('HSET', p .. 'file:' .. f.id, 'tenant', f.tenant, 'name', f.name, 'purpose', f.purpose, 'bytes', f.bytes, 'chunks', f.chunks,
    'created_at', s)
  if f.ttl_s > 0 then
    redis.call('HSET', p .. 'file:' .. f.id, 'expires_at', s + f.ttl_s)
    redis.call('ZADD', p .. 'files:expiry', f.now + f.ttl_s * 1000, f.id)
  end
  redis.call('ZADD', p .. 'files:' .. f.tenant, redis.call('INCR', p .. 'files:seq'), f.id)
end

local function remove(p, f)
  for i = 0, f.chunks - 1 do redis.call('UNLINK', p .. 'file:' .. f.id .. ':' .. i) end
  redis.call('DEL', p .. 'file:' .. f.id)
  filing.use(p, f.tenant, -f.bytes)
end

local function delete(p, f)
  redis.call('ZREM', p .. 'files:' .. f.tenant, f.id)
  redis.call('ZREM', p .. 'files:expiry', f.id)
  if f.users > 0 then
    redis.call('HSET', p .. 'file:' .. f.id, 'deleted', 1)
  else
    remove(p, f)
  end
end

function filing.hold(p, id)
  redis.call('HINCRBY', p .. 'file:' .. id, 'users', 1)
end

function filing.release(p, id)
  local tenant = redis.call('HGET', p .. 'file:' .. id, 'tenant')
  if not tenant then return end
  local users = redis.call('HINCRBY', p .. 'file:' .. id, 'users', -1)
  if users <= 0 and redis.call('HGET', p .. 'file:' .. id, 'deleted') then remove(p, filing.load(p, id, tenant, true)) end
end

function filing.sweep(p, now)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. 'files:expiry', '-inf', now, 'LIMIT', 0, 10)) do
    local f = filing.load(p, id, redis.call('HGET', p .. 'file:' .. id, 'tenant') or '')
    if f then delete(p, f) end
    redis.call('ZREM', p .. 'files:expiry', id)
  end
end

local function no_room(p, tenant, bytes, most)
  local used = filing.used(p, tenant)
  if used + bytes <= most then return nil end
  return NO(413, 'file_quota_exceeded', 'file', string.format(
    'files may take %.0f bytes together: %.0f are in use and %.0f more are asked for; delete some', most, used, bytes))
end

local function room(p, a)
  filing.sweep(p, now_ms())
  return no_room(p, a[1], tonumber(a[2]), tonumber(a[3])) or 1
end

local function add(p, a)
  local f = {id = a[1], tenant = a[2], name = a[3], purpose = a[4], bytes = tonumber(a[5]), chunks = tonumber(a[6]), ttl_s = tonumber(a[7]),
             now = now_ms()}
  local no = no_room(p, f.tenant, f.bytes, tonumber(a[8]))
  if not no and redis.call('ZCARD', p .. 'files:' .. f.tenant) >= tonumber(a[9]) then
    no = NO(400, 'too_many_files', 'file', 'there are ' .. a[9] .. ' files already: delete some')
  end
  for i = 0, f.chunks - 1 do
    local key = p .. 'file:' .. f.id .. ':' .. i
    if no then
      redis.call('UNLINK', key)
    elseif redis.call('EXISTS', key) == 0 then
      return NO(503, 'file_incomplete', 'file', 'a part of the file has been lost on its way: send it again')
    else
      redis.call('PERSIST', key)
    end
  end
  if no then return no end
  filing.use(p, f.tenant, f.bytes)
  filing.add(p, f)
  return json_of(filing.load(p, f.id, f.tenant))
end

local function own(p, a)
  local f = filing.load(p, a[1], a[2])
  if f then return f end
  return nil, NO(404, 'file_not_found', 'file_id', 'there is no file ' .. clean(a[1], 64))
end

local function get(p, a)
  local f, no = own(p, a)
  return f and {json_of(f), f.chunks} or no
end

local function list(p, a)
  local key, limit, out, more = p .. 'files:' .. a[1], tonumber(a[4]), {}, false
  local from, now_s = 0, now_ms() / 1000
  if a[3] ~= '' then
    from = redis.call(a[5] == 'asc' and 'ZRANK' or 'ZREVRANK', key, a[3])
    if not from then return NO(400, 'invalid_after', 'after', 'there is no file ' .. clean(a[3], 64)) end
    from = from + 1
  end
  local ids = a[5] == 'asc' and redis.call('ZRANGE', key, from, -1) or redis.call('ZRANGE', key, from, -1, 'REV')
  local first, last = cjson.null, cjson.null
  for _, id in ipairs(ids) do
    local f = filing.load(p, id, a[1])
    if f and (a[2] == '' or f.purpose == a[2]) and (f.expires_at or now_s + 1) > now_s then
      if #out == limit then
        more = true
        break
      end
      if #out == 0 then first = id end
      last = id
      out[#out + 1] = json_of(f)
    end
  end
  return json_object({'object', 'list', 'data', {json = json_list(out)}, 'first_id', first, 'last_id', last, 'has_more', more})
end

local function delete_own(p, a)
  local f, no = own(p, a)
  if not f then return no end
  delete(p, f)
  return json_object({'id', f.id, 'object', 'file', 'deleted', true})
end

filing.register('deja_file_add', add, 9)
filing.register_reading('deja_file_get', get, 2)
filing.register_reading('deja_file_list', list, 5)
filing.register('deja_file_delete', delete_own, 2)
filing.register('deja_file_room', room, 3)
end
