-- Lifts the fence counter to the token if the key holds the value.
--
--     KEYS: key, fence   ARGV: value, token, fence expiry ms, 0 for ever
--
-- It returns 1 if the counter is at least the token now, 0 if there was no key, -1 if the key is
-- somebody else's.

local v = redis.call('GET', KEYS[1])
if not v then return 0 end
if v ~= ARGV[1] then return -1 end
local fence = KEYS[2]
local c = redis.call('GET', fence)
if c and (not string.match(c, '^%d+$') or #c > 16 or tonumber(c) > 9007199254740991) then
	return redis.error_reply('ERR redlock: the fence counter ' .. fence .. ' holds something else')
end
if not c or tonumber(c) < tonumber(ARGV[2]) then
	if ARGV[3] == '0' then
		redis.call('SET', fence, ARGV[2])
	else
		redis.call('SET', fence, ARGV[2], 'PX', ARGV[3])
	end
end
return 1
