// Guardian's Logback appender: each record is logged as a line, with its documentation's settings.

import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.joran.JoranConfigurator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

public class Main {
    public static void main(String[] arguments) throws Exception {
        String settings = """
                <configuration>
                  <appender name="KINESIS" class="com.gu.logback.appender.kinesis.KinesisAppender">
                    <bufferSize>1000</bufferSize>
                    <threadCount>20</threadCount>
                    <endpoint>%s</endpoint>
                    <region>%s</region>
                    <maxRetries>3</maxRetries>
                    <shutdownTimeout>30</shutdownTimeout>
                    <streamName>%s</streamName>
                    <encoding>UTF-8</encoding>
                    <layout class="ch.qos.logback.classic.PatternLayout">
                      <pattern>%%m</pattern>
                    </layout>
                  </appender>
                  <logger name="flights" additivity="false" level="INFO">
                    <appender-ref ref="KINESIS"/>
                  </logger>
                </configuration>
                """.formatted(System.getenv("ENDPOINT"), System.getenv("AWS_REGION"), System.getenv("STREAM"));
        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        JoranConfigurator configurator = new JoranConfigurator();
        configurator.setContext(context);
        context.reset();
        configurator.doConfigure(new ByteArrayInputStream(settings.getBytes(StandardCharsets.UTF_8)));
        Logger logger = LoggerFactory.getLogger("flights");
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            logger.info(mapper.readTree(line).get("data").asText());
        }
        context.stop();
    }
}
