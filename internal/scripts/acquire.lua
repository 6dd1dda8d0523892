-- Is SET NX PX with a restart guard, a fencing token, or both.
--
--     KEYS: key [fence]
--     ARGV: value, expiry ms [, proposed token, fence expiry ms] [, guard seconds]
--
-- A fence expiry of 0 stands for a counter that lives for ever. Scripts that begin with other lines
-- set ARGV.free if the key may be overwritten, and ARGV.place to a place in a queue that ends.
--
-- It returns a positive number if the key holds the value now: the fence counter, or 1 without
-- fencing. It returns 0 if the key is somebody else's, and -s if the guard refuses for another s
-- seconds. Nothing is written before the counter has been found good. A node that refuses writes,
-- or where the counter is of another type, says that first.
--
-- Numbers are doubles in Lua and exact up to 2^53; they are written with %.0f because tostring
-- rounds to 14 digits. Of a counter with 16 characters, which is what microseconds since 1970 have
-- until 2286, tonumber is enough to know: from 10^15 on they are digits, but for a hexadecimal
-- number or one with an exponent. To look for anything but digits costs as much again as the rest
-- of the check.

local call, key, fence = redis.call, KEYS[1], KEYS[2]
local guard = ARGV[fence and 5 or 3]
if guard and (ARGV.free or not call('GET', key)) then
	local up = tonumber(string.match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)') or '')
	if not up then
		return redis.error_reply('ERR redlock: INFO server does not tell uptime_in_seconds')
	end
	if up < tonumber(guard) then return up - tonumber(guard) end
end
local c, token, last, fault = 1, ARGV[3]
if fence then
	c = tonumber(token)
	local v = call('GET', fence)
	if v then
		last = tonumber(v)
		if not (last and last <= 9007199254740991)
			or (#v ~= 16 or last < 1e15) and (#v > 16 or string.find(v, '%D')) then
			last, fault = nil, 'holds something else'
		elseif last >= c then
			c = last + 1
			token = string.format('%.0f', c)
		end
	end
	if c > 9007199254740991 then fault = fault or 'is at its end' end
end
if fault or not call('SET', key, ARGV[1], 'PX', ARGV[2], ARGV.free and 'XX' or 'NX') then
	local held = call('GET', key)
	if held and held ~= ARGV[1] and not ARGV.free then return 0 end
	if held == ARGV[1] and last then return last end
	if fault then
		return redis.error_reply('ERR redlock: the fence counter ' .. fence .. ' ' .. fault)
	end
	if not held then return 0 end
end
if fence and ARGV[4] == '0' then
	call('SET', fence, token)
elseif fence then
	call('SET', fence, token, 'PX', ARGV[4])
end
if ARGV.place then redis.pcall('ZREM', unpack(ARGV.place)) end
return c
