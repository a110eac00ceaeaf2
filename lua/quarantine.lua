-- quarantine - entries that many unlike questions hit (cache/crowd.h) are set aside: on every gateway they answer equal requests and approved
-- wordings only, until somebody clears them. What people said stands for 90 days, also for the answer made anew.
--
-- Keys behind deja:{namespace}:  aside  hash  id -> {"s":"quarantined"|"cleared","at","till" (unix s),"n" questions,"k" unlike ones,"by","ns"}
--
-- deja_quarantine KEYS {ns}  ARGV source id questions unlike
--     A gateway has seen it. Reply: SET, or CLEARED: somebody has cleared it, nothing has changed.
-- What people do is in deja_review: list WHAT quarantined, clear ENTRY, quarantine ENTRY.

local ASIDE = {MAX = 4096, TTL_S = 90 * 86400} -- beyond MAX the oldest quarantined entry is deleted, so that it never serves again

do
  local SHAPE = {s = 'string', at = 'number', till = 'number', n = 'number', k = 'number', by = 'string', ns = 'string'}

  -- What is not of the shape is none: one damaged item must not stop those who read all.
  local function whole(item)
    if type(item) ~= 'table' then return false end
    for name, kind in pairs(SHAPE) do
      if type(item[name]) ~= kind then return false end
    end
    if item.s ~= 'quarantined' and item.s ~= 'cleared' then return false end
    return item.at >= 0 and item.at < 2 ^ 33 and item.n >= 0 and item.n < 2 ^ 53 and item.k >= 0 and item.k < 2 ^ 53
  end

  local function item_of_text(text)
    local ok, item = pcall(cjson.decode, text or '')
    if ok and whole(item) and item.till > now_s() then return item end
  end

  function ASIDE.of(prefix, id)
    return item_of_text(redis.call('HGET', prefix .. 'aside', id))
  end

  -- id -> item of all that have not ended; what has goes
  function ASIDE.all(prefix)
    local flat, out, n = redis.call('HGETALL', prefix .. 'aside'), {}, 0
    for i = 1, #flat, 2 do
      local item = item_of_text(flat[i + 1])
      if item then
        out[flat[i]], n = item, n + 1
      else
        redis.call('HDEL', prefix .. 'aside', flat[i])
      end
    end
    return out, n
  end

  local function make_room(prefix)
    if redis.call('HLEN', prefix .. 'aside') < ASIDE.MAX then return end
    local all, n = ASIDE.all(prefix)
    if n < ASIDE.MAX then return end
    local oldest
    for id, item in pairs(all) do
      if not oldest or item.at < all[oldest].at or (item.at == all[oldest].at and id < oldest) then oldest = id end
    end
    if all[oldest].s == 'quarantined' then
      local _, part = remove_entry(prefix, oldest)
      tell(prefix, nil, 'op', 'del', 'id', oldest, 'part', part, 'src', '')
    end
    redis.call('HDEL', prefix .. 'aside', oldest)
  end

  local function aside_put(prefix, id, state, n, k, by)
    local f = stored_fields(prefix .. 'e:' .. id)
    if redis.call('HEXISTS', prefix .. 'aside', id) == 0 then make_room(prefix) end
    redis.call('HSET', prefix .. 'aside', id,
               cjson.encode({s = state, at = now_s(), till = now_s() + ASIDE.TTL_S, n = n, k = k, by = by, ns = f and f.ns or ''}))
    tell(prefix, nil, 'op', 'aside', 'id', id, 'state', state)
  end

  local function deja_quarantine(keys, args)
    local prefix, n, k = prefix_of(keys[1]), number(args[3], 1, 2 ^ 31), number(args[4], 0, 2 ^ 31)
    if #keys ~= 1 or not prefix then return bad('deja_quarantine needs 1 key that names the key space, as in {deja}') end
    if #args ~= 4 or not is_id(args[2]) or not n or not k then return bad('deja_quarantine needs: source id questions unlike') end
    local item = ASIDE.of(prefix, args[2])
    if item and item.s == 'cleared' then return redis.status_reply('CLEARED') end
    if not item then aside_put(prefix, args[2], 'quarantined', n, k, 'gateway') end
    return redis.status_reply('SET')
  end

  -- {id, state, ...} for gateways
  function ASIDE_FLAT(prefix)
    local out = {}
    for id, item in pairs((ASIDE.all(prefix))) do
      out[#out + 1], out[#out + 2] = id, item.s
    end
    return out
  end

  -- --- what people see and do (deja_review)
  -- Clears or quarantines; what was done, or nil and what is wrong.
  function ASIDE.judge(prefix, verb, id, by)
    if not is_id(id) then return nil, verb .. ' needs the 32 hex digits of x-deja-entry' end
    local old, e = ASIDE.of(prefix, id), stored_fields(prefix .. 'e:' .. id)
    if verb == 'clear' and not (old and old.s == 'quarantined') then return nil, 'the entry ' .. id .. ' is not in quarantine' end
    if verb == 'quarantine' and (not e or e.role == 'w') then return nil, 'there is no entry ' .. id end
    local state = verb == 'clear' and 'cleared' or 'quarantined'
    aside_put(prefix, id, state, old and old.n or 0, old and old.k or 0, by)
    return id .. ': ' .. state .. '  "' .. (e and e.q or 'gone') .. '"'
  end

  local function aside_line(x)
    local seen = x.n > 0 and string.format('  %d of %d questions unlike', x.k, x.n) or ''
    return x.id .. '  ' .. x.s .. '  "' .. (x.q or 'gone') .. '"' .. seen .. '  since ' .. date_text(x.at * 1000) .. ' by ' .. x.by
  end

  local function aside_json(x)
    return json_object({'id', x.id, 'state', x.s, 'namespace', x.ns, 'stored', x.q or cjson.null, 'entry', x.id, 'questions', x.n, 'unlike', x.k,
                        'at', date_text(x.at * 1000), 'by', x.by})
  end

  -- Appends at most n to out, newest first.
  function ASIDE.list(prefix, ns, state, n, json, out)
    local found = {}
    for id, item in pairs((ASIDE.all(prefix))) do
      item.id = id
      if item.s == state and (not ns or item.ns == (ns == '-' and '' or ns)) then found[#found + 1] = item end
    end
    table.sort(found, function(a, b) return a.at > b.at or (a.at == b.at and a.id < b.id) end)
    for i = 1, math.min(n, #found) do
      local f = stored_fields(prefix .. 'e:' .. found[i].id)
      found[i].q = f and f.q
      out[#out + 1] = json and aside_json(found[i]) or aside_line(found[i])
    end
  end

  redis.register_function('deja_quarantine', deja_quarantine)
end
